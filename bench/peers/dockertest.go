package main

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/ory/dockertest/v3"
	dc "github.com/ory/dockertest/v3/docker"
	"github.com/redis/go-redis/v9"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// docktest is ory/dockertest as its examples use it: run, then Retry with a ping through the published port.
type docktest struct {
	pool   *dockertest.Pool
	labels map[string]string
}

func newDockertest(label, value string) (docktest, error) {
	pool, err := dockertest.NewPool("")
	if err != nil {
		return docktest{}, fmt.Errorf("dockertest: %w", err)
	}
	pool.MaxWait = limit
	return docktest{pool: pool, labels: map[string]string{label: value}}, nil
}

func (docktest) together() bool { return true }

func (d docktest) start(ctx context.Context, o order) (func(context.Context) error, error) {
	repository, tag, _ := strings.Cut(o.image, ":")
	r, err := d.pool.RunWithOptions(&dockertest.RunOptions{
		Repository: repository, Tag: tag, Env: o.pairs(), Cmd: o.cmd, Labels: d.labels, ExposedPorts: []string{o.port},
	}, func(h *dc.HostConfig) {
		h.Memory, h.CPUPeriod, h.CPUQuota, h.PidsLimit = memory, 100_000, 100_000, pids
		if o.data != "" {
			h.Tmpfs = map[string]string{o.data: "rw"}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	remove := func(context.Context) error {
		if err := d.pool.Purge(r); err != nil {
			return fmt.Errorf("purge: %w", err)
		}
		return nil
	}
	addr := net.JoinHostPort("127.0.0.1", r.GetPort(o.port))
	if err := d.pool.Retry(func() error { return ping(ctx, o.engine, addr) }); err != nil {
		return remove, fmt.Errorf("retry: %w", err)
	}
	return remove, nil
}

// ping asks the server once.
func ping(ctx context.Context, engine, addr string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	switch engine {
	case "postgres":
		c, cerr := pgx.Connect(ctx, fmt.Sprintf("postgres://%s:%s@%s/%s?sslmode=disable", user, password, addr, user))
		if cerr != nil {
			return fmt.Errorf("connect: %w", cerr)
		}
		defer func() { _ = c.Close(ctx) }()
		err = c.Ping(ctx)
	case "redis":
		c := redis.NewClient(&redis.Options{Addr: addr, Password: password, MaxRetries: -1})
		defer func() { _ = c.Close() }()
		err = c.Ping(ctx).Err()
	case "mongo":
		c, cerr := mongo.Connect(options.Client().ApplyURI(fmt.Sprintf("mongodb://%s:%s@%s/?authSource=admin", user, password, addr)))
		if cerr != nil {
			return fmt.Errorf("connect: %w", cerr)
		}
		defer func() { _ = c.Disconnect(context.WithoutCancel(ctx)) }()
		err = c.Ping(ctx, nil)
	}
	if err != nil {
		return fmt.Errorf("ping: %w", err)
	}
	return nil
}
