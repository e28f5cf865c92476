package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/roboco/sandboxd/cmd/internal/system"
	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/worker/docker"
)

// trivial is the image whose containers do nothing: it comes with `make images`.
const trivial = "roboco-sandbox-agent:latest"

// rig is a whole sandboxd in this process, over a real Redis and the real container engine.
type rig struct {
	runtime *docker.Runtime
	engines engines.Registry
	id      string
	network string
	whole   *system.System
	// Tokens by who calls.
	choreographer, token string
	closers              []func()
}

const agent = "bench"

// start brings the system up; on an error nothing of it is left.
func start(ctx context.Context) (s *rig, err error) {
	id := uuid.NewString()[:8]
	s = &rig{id: id, network: "sandboxd-bench-" + id, engines: engines.Builtin()}
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
	return s, s.serve(ctx, addr)
}

// startRedis runs the bus's own Redis as one more container.
func (s *rig) startRedis(ctx context.Context) (string, error) {
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
func (s *rig) serve(ctx context.Context, addr string) (err error) {
	s.whole, err = system.Start(ctx, system.Config{
		Redis: addr, Runtime: s.runtime, Engines: s.engines, Network: s.network, Workers: 1,
		Bus: events.Config{Cell: "bench-" + s.id, Log: zerolog.Nop()},
	})
	if err != nil {
		return fmt.Errorf("start the system: %w", err)
	}
	s.closers = append(s.closers, func() {
		if err := s.whole.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
	})
	if s.token, err = s.whole.Agent(ctx, agent, "developer"); err != nil {
		return err
	}
	s.choreographer, err = s.whole.Agent(ctx, "bench-choreographer", "choreographer")
	return err
}

// stop takes everything down, in the reverse order, sandboxes included.
func (s *rig) stop() {
	for i := len(s.closers) - 1; i >= 0; i-- {
		s.closers[i]()
	}
}
