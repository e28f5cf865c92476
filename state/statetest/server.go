package statetest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	image        = "postgres:16-alpine"
	dockerWithin = 3 * time.Minute // one docker command, a pull included
	readyWithin  = 3 * time.Minute // the server's start to its first answered query
)

// Server is a Postgres server in a container of its own, published on a fixed port of 127.0.0.1.
type Server struct {
	name     string
	password string
	port     string
	lifeline *os.File
}

// NewServer starts a server that the test may pause, kill and start again; its data outlives a kill. It is removed
// when the test ends. The test is skipped where there is no Docker, and under -short.
func NewServer(t testing.TB) *Server {
	t.Helper()
	needDocker(t)
	s, err := startServer()
	if err != nil {
		t.Fatalf("start a Postgres for the test: %v", err)
	}
	t.Cleanup(func() {
		if _, err := docker(nil, "rm", "-f", "-v", s.name); err != nil {
			t.Errorf("remove the test's Postgres: %v", err)
		}
		_ = s.lifeline.Close()
	})
	return s
}

// URL names a database of the server; "" is the one it starts with.
func (s *Server) URL(database string) string {
	if database == "" {
		database = "postgres"
	}
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword("postgres", s.password),
		Host: net.JoinHostPort("127.0.0.1", s.port), Path: "/" + database, RawQuery: "sslmode=disable&connect_timeout=30",
	}
	return u.String()
}

// Pause freezes the server: connections stay open and nothing is answered.
func (s *Server) Pause(t testing.TB) { s.must(t, "pause") }

// Unpause lets it go on.
func (s *Server) Unpause(t testing.TB) { s.must(t, "unpause") }

// Kill ends the server without a word; its port refuses.
func (s *Server) Kill(t testing.TB) { s.must(t, "kill") }

// Start starts it again after Kill and waits until it answers.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	s.must(t, "start")
	if err := s.await(); err != nil {
		t.Fatal(err)
	}
}

func (s *Server) must(t testing.TB, verb string) {
	t.Helper()
	if _, err := docker(nil, verb, s.name); err != nil {
		t.Fatal(err)
	}
}

// startServer starts a container that is removed when the process ends, however it ends.
func startServer(options ...string) (*Server, error) {
	const tries = 3 // another process may take the free port before the container does
	var s *Server
	var err error
	for range tries {
		if s, err = launch(options); err == nil {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	if err := s.await(); err != nil {
		logs, _ := docker(nil, "logs", "--tail", "20", s.name)
		return nil, errors.Join(fmt.Errorf("%w; its log ends with:\n%s", err, logs), s.lifeline.Close())
	}
	return s, nil
}

// launch starts the container and does not wait for the server in it. The password goes by the environment: a command
// line can be read by all.
func launch(options []string) (*Server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	s := &Server{name: "statetest-" + random(6), password: random(16), port: port}
	if s.lifeline, err = removeWithProcess(s.name); err != nil {
		return nil, err
	}
	args := append([]string{
		"run", "-d", "--name", s.name, "-e", "POSTGRES_PASSWORD", "-p", "127.0.0.1:" + port + ":5432",
	}, options...)
	args = append(args, image, "postgres", "-c", "fsync=off", "-c", "full_page_writes=off", "-c", "max_connections=300")
	if _, err := docker([]string{"POSTGRES_PASSWORD=" + s.password}, args...); err != nil {
		return nil, errors.Join(err, s.lifeline.Close())
	}
	return s, nil
}

// await polls until an authenticated query over TCP is answered.
func (s *Server) await() error {
	deadline := time.Now().Add(readyWithin)
	for {
		err := s.query()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("postgres in container %s did not answer within %s: %w", s.name, readyWithin, err)
		}
		time.Sleep(50 * time.Millisecond) // the pace of the poll
	}
}

func (s *Server) query() error {
	ctx, cancel := context.WithTimeout(context.Background(), readyWithin/4)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL(""))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "SELECT 1")
	return errors.Join(err, conn.Close(ctx))
}

// removeWithProcess starts a shell that waits until this process lets go of the returned pipe, by Close or by its
// end, and then removes the container. A test binary has no hook for its end, and a killed one could not run it.
func removeWithProcess(container string) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	cmd := exec.Command("sh", "-c", `read -r _; docker rm -f -v "$0"`, container)
	cmd.Stdin = r
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt at the keyboard must not end it
	if err := cmd.Start(); err != nil {
		_ = w.Close()
		return nil, fmt.Errorf("start the remover of container %s: %w", container, err)
	}
	return w, cmd.Process.Release()
}

// needDocker skips the test, with the reason, where it cannot have a container; with REQUIRE_DOCKER=1 it fails.
func needDocker(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a container: not under -short")
	}
	_, err := docker(nil, "image", "inspect", "--format", "{{.Id}}", image)
	if err == nil {
		return
	}
	if _, pull := docker(nil, "pull", "-q", image); pull == nil {
		return
	}
	if os.Getenv("REQUIRE_DOCKER") == "1" {
		t.Fatalf("no Postgres container to be had: %v", err)
	}
	t.Skipf("no Postgres container to be had: %v", err)
}

// docker runs one command of the docker CLI, with more environment, and returns what it printed.
func docker(env []string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dockerWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, "docker", args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("docker %s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
	}
	return strings.TrimSpace(string(out)), nil
}

// freePort finds a port of the loopback that nobody listens on now.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	defer func() { _ = l.Close() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

func random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
