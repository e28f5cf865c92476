package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	postgresImage = "postgres:16-alpine"
	storeUpWithin = 2 * time.Minute
)

// database is a Postgres of the run's own in a container; its data outlives a kill.
type database struct {
	name, password string
	port           int
}

func newDatabase(ctx context.Context, name string) (*database, error) {
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	d := &database{name: name, password: strings.ToLower(rand.Text()), port: port}
	_, err = cli(ctx, []string{"POSTGRES_PASSWORD=" + d.password}, "run", "-d", "--name", name, "-e", "POSTGRES_PASSWORD",
		"-p", fmt.Sprintf("127.0.0.1:%d:5432", port), postgresImage, "postgres", "-c", "fsync=off", "-c", "full_page_writes=off", "-c", "max_connections=200")
	if err == nil {
		err = d.await(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

func (d *database) addr() string { return fmt.Sprintf("127.0.0.1:%d", d.port) }

// url is the database's address by way of a link.
func (d *database) url(addr string) string {
	return fmt.Sprintf("postgres://postgres:%s@%s/postgres?sslmode=disable", d.password, addr)
}

// restart is a kill and a start. What is begun is brought to its end, whatever becomes of the run.
func (d *database) restart(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	if _, err := cli(ctx, nil, "kill", d.name); err != nil {
		return err
	}
	if _, err := cli(ctx, nil, "start", d.name); err != nil {
		return err
	}
	return d.await(ctx)
}

// await polls until the server answers a query.
func (d *database) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storeUpWithin)
	defer cancel()
	for {
		err := d.query(ctx)
		if err == nil {
			return nil
		}
		if !sleep(ctx, 50*time.Millisecond) {
			return fmt.Errorf("wait for postgres: %w", err)
		}
	}
}

func (d *database) query(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := pgx.Connect(ctx, d.url(d.addr()))
	if err != nil {
		return fmt.Errorf("connect to postgres: %w", err)
	}
	_, err = c.Exec(ctx, "SELECT 1")
	return errors.Join(err, c.Close(ctx))
}

func (d *database) close() error {
	_, err := cli(context.Background(), nil, "rm", "-f", "-v", d.name)
	return err
}

// cli runs one command of the docker CLI, with more environment, and returns what it printed.
func cli(ctx context.Context, env []string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, storeUpWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, "docker", args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("docker %s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
	}
	return strings.TrimSpace(string(out)), nil
}
