package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/state"
	"github.com/roboco/sandboxd/verbs"
	"github.com/roboco/sandboxd/worker"
	"github.com/roboco/sandboxd/worker/docker"
)

// trivial is the image whose containers do nothing: it comes with `make images`.
const trivial = "roboco-sandbox-agent:latest"

// system is a whole sandboxd in this process, over a real Redis and the real container engine.
type system struct {
	runtime *docker.Runtime
	engines engines.Registry
	id      string
	network string
	url     string
	// Tokens by who calls.
	operator, choreographer, token string
	closers                        []func()
}

const agent = "bench"

// start brings the system up; on an error nothing of it is left.
func start(ctx context.Context) (s *system, err error) {
	id := uuid.NewString()[:8]
	s = &system{id: id, network: "sandboxd-bench-" + id, engines: engines.Builtin()}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	if s.runtime, err = docker.Open(ctx, docker.Config{Host: os.Getenv("DOCKER_HOST"), Log: zerolog.Nop()}); err != nil {
		return s, fmt.Errorf("container engine: %w", err)
	}
	s.closers = append(s.closers, func() { _ = s.runtime.Close() }, func() {
		_ = exec.Command("docker", "network", "rm", s.network).Run() //nolint:gosec,noctx // a network of this run's own
	})
	if err = s.runtime.EnsureNetwork(ctx, s.network); err != nil {
		return s, fmt.Errorf("network: %w", err)
	}
	addr, err := s.startRedis(ctx)
	if err != nil {
		return s, err
	}
	calls, blocking := redis.NewClient(&redis.Options{Addr: addr}), redis.NewClient(&redis.Options{Addr: addr})
	bus := events.New(calls, blocking, events.Config{Cell: "bench-" + id, Log: zerolog.Nop()})
	if _, err = bus.Check(ctx); err != nil {
		return s, fmt.Errorf("redis: %w", err)
	}
	store := state.NewMemory(state.Catalog{Services: s.engines.Names(), Features: s.engines.Allowed()})
	return s, s.serve(ctx, bus, store)
}

// startRedis runs the bus's own Redis as one more container.
func (s *system) startRedis(ctx context.Context) (string, error) {
	id, err := s.runtime.Create(ctx, engines.Launch{
		Spec: engines.Spec{
			Image: "redis:8-alpine", User: "redis", Port: 6379,
			Entrypoint: []string{"redis-server"}, Cmd: []string{"--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction", "--protected-mode", "no"},
		},
		Name: "sandboxd-bench-redis-" + s.id, Network: s.network, Memory: 256 << 20, NanoCPUs: 1e9, Pids: 64, Loopback: true,
		Labels: map[string]string{"roboco.sandbox": "1", "roboco.sandbox.cell": "bench-store-" + s.id},
	})
	if err != nil {
		return "", fmt.Errorf("create redis: %w", err)
	}
	s.closers = append(s.closers, func() { _ = s.runtime.Remove(context.Background(), id, 0) })
	if err := s.runtime.Start(ctx, id); err != nil {
		return "", fmt.Errorf("start redis: %w", err)
	}
	c, err := s.runtime.Inspect(ctx, id)
	if err != nil {
		return "", fmt.Errorf("inspect redis: %w", err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", c.LoopbackPort)
	rdb := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: 50, MinRetryBackoff: 50 * time.Millisecond, MaxRetryBackoff: 200 * time.Millisecond})
	defer func() { _ = rdb.Close() }()
	if err := rdb.Ping(ctx).Err(); err != nil {
		return "", fmt.Errorf("redis does not answer: %w", err)
	}
	return addr, nil
}

// serve starts one worker and one gateway, and makes the agent that asks.
func (s *system) serve(ctx context.Context, bus *events.Bus, store state.Store) error {
	w := worker.New(worker.Config{
		Bus: bus, Store: store, Engines: s.engines, Runtime: s.runtime, Roles: verbs.DefaultRoles()[verbs.RequestSandbox],
		Cell: "bench-" + s.id, Network: s.network, Enabled: true, Log: zerolog.Nop(),
	})
	s.operator = uuid.NewString()
	g, err := verbs.New(verbs.Config{Bus: bus, Store: store, Engines: s.engines, OperatorToken: s.operator, Enabled: true, Log: zerolog.Nop()})
	if err != nil {
		return fmt.Errorf("gateway: %w", err)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	server := &http.Server{Handler: g.Handler(), ReadHeaderTimeout: 5 * time.Second}
	done := make(chan error, 3)
	go func() { done <- w.Run(run) }()
	go func() { done <- g.Run(run) }()
	go func() { done <- server.Serve(l) }()
	s.closers = append(s.closers, func() {
		cancel()
		_ = server.Close()
		for range 3 {
			if err := <-done; err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, context.Canceled) {
				fmt.Fprintln(os.Stderr, "bench:", err)
			}
		}
	})
	s.url = "http://" + l.Addr().String()
	if s.token, err = s.makeAgent(ctx, agent, "developer"); err != nil {
		return err
	}
	s.choreographer, err = s.makeAgent(ctx, "bench-choreographer", "choreographer")
	return err
}

func (s *system) makeAgent(ctx context.Context, slug, role string) (token string, err error) {
	op, err := client.New(client.Config{URL: s.url, Token: s.operator})
	if err != nil {
		return "", fmt.Errorf("client: %w", err)
	}
	made, err := op.CreateAgent(ctx, slug, role)
	if err != nil {
		return "", fmt.Errorf("make agent %s: %w", slug, err)
	}
	return made.Token, nil
}

// stop takes everything down, in the reverse order, sandboxes included.
func (s *system) stop() {
	for i := len(s.closers) - 1; i >= 0; i-- {
		s.closers[i]()
	}
}
