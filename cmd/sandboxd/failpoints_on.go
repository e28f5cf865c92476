//go:build failpoints

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/roboco/sandboxd/cmd/sandboxd/failpoint"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/state"
	"github.com/roboco/sandboxd/worker"
	"github.com/roboco/sandboxd/worker/docker"
	"github.com/roboco/sandboxd/worker/workertest/simwire"
)

// This build ends itself at a named point. What it is told comes from variables outside the product's names:
//
//	SANDBOXD_FAILPOINT        where to end: a point and the number of its pass, redis.record.after#2
//	SANDBOXD_FAILPOINT_TRACE  a file to which each point that is passed is appended
//	SANDBOXD_FAILPOINT_ENGINE the socket of a simulated container engine, in place of Docker
//	SANDBOXD_FAILPOINT_LIFE   when set, the process goes with its standard input: it never outlives the test that holds it
//	SANDBOXD_FAILPOINT_LEASE  how long a lease lives, with the other times in proportion, so that a test need not wait

// points are the process's own; what it is told is read once.
//
//nolint:gochecknoglobals // a build for tests alone; one process ends at one point
var points = sync.OnceValues(func() (*failpoint.Points, error) {
	if os.Getenv("SANDBOXD_FAILPOINT_LIFE") != "" {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
		}()
	}
	return failpoint.Open(os.Getenv("SANDBOXD_FAILPOINT"), os.Getenv("SANDBOXD_FAILPOINT_TRACE"))
})

// mustPoints ends a process that was told nonsense: a test must not go on without its point.
func mustPoints() *failpoint.Points {
	p, err := points()
	if err != nil {
		panic(err)
	}
	return p
}

// lease is how long a lease is to live, or 0.
func lease() time.Duration {
	text := os.Getenv("SANDBOXD_FAILPOINT_LEASE")
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(fmt.Errorf("SANDBOXD_FAILPOINT_LEASE: %w", err))
	}
	return d
}

// tapBus shortens the times, and has the scripts write the audit by which a test judges what happened.
func tapBus(c events.Config) events.Config {
	c.Audit = true
	if d := lease(); d > 0 {
		c.Lease, c.ClaimIdle, c.Park = d, d*7/6, d/6
	}
	return c
}

// tapRedis puts points around every command of the clients.
func tapRedis(b *events.Bus, clients ...redis.UniversalClient) {
	for _, c := range clients {
		c.AddHook(mustPoints().Hook(b.ScriptNames()))
	}
}

// tapDatabase bears with a slow machine: a store that does not answer in time is another test's.
func tapDatabase(c state.PostgresConfig) state.PostgresConfig {
	c.Timeout = 20 * time.Second
	return c
}

// tapStore puts points around every call of the durable store.
func tapStore(s state.Store) state.Store { return mustPoints().Store(s) }

// tapWorker shortens the heartbeat and the pools' tick, and puts the servers of a simulated engine behind points.
func tapWorker(c worker.Config) worker.Config {
	if e, ok := c.Runtime.(tappedEngine); ok && e.sim != nil {
		c.Engines = simwire.Engines(e.sim)
	}
	c.Engines = mustPoints().Engines(c.Engines)
	c.Beat, c.PoolTick = lease()/3, lease()/3
	return c
}

// tappedEngine is a container engine behind points: Docker, or a simulated one.
type tappedEngine struct {
	worker.Runtime
	docker *docker.Runtime
	sim    *simwire.Client
}

// openEngine connects to the container engine, or to the simulated one that it was told of.
func (p program) openEngine(ctx context.Context, cfg config, log zerolog.Logger) (containerEngine, error) {
	socket := os.Getenv("SANDBOXD_FAILPOINT_ENGINE")
	if socket == "" {
		rt, err := p.openDocker(ctx, cfg, log)
		if err != nil {
			return nil, err
		}
		return tappedEngine{Runtime: mustPoints().Runtime(rt), docker: rt}, nil
	}
	sim, err := simwire.Dial(socket)
	if err != nil {
		return nil, err
	}
	return tappedEngine{Runtime: mustPoints().Runtime(sim), sim: sim}, nil
}

// Endpoint is where the engine listens.
func (e tappedEngine) Endpoint() string {
	if e.docker != nil {
		return e.docker.Endpoint()
	}
	return "simulated"
}

// Close lets go of the engine.
func (e tappedEngine) Close() error {
	if e.docker != nil {
		return e.docker.Close()
	}
	return e.sim.Close()
}
