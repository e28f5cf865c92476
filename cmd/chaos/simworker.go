package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/state"
	"github.com/roboco/sandboxd/worker"
	"github.com/roboco/sandboxd/worker/workertest/simwire"
)

const (
	workerCommand  = "worker"       // this program as one worker process
	workerSettings = "CHAOS_WORKER" // the variable with its settings; they hold a password
	leakedCode     = 4              // the exit code of a worker that left goroutines behind
)

// simWorker is what a worker process on the simulated engine is told.
type simWorker struct {
	Engine, Redis, Database, Cell, Network string
	Times                                  times
	Pool                                   map[string]worker.PoolSize
}

// runWorker is one worker process: the worker, the bus and the store as the server has them, with shorter times, and the
// simulated engine of the harness in place of Docker.
func runWorker(ctx context.Context) error {
	var s simWorker
	if err := json.Unmarshal([]byte(os.Getenv(workerSettings)), &s); err != nil {
		return fmt.Errorf("read %s: %w", workerSettings, err)
	}
	logging.Disable() // the worker tells what it makes of broken connections
	if err := s.work(ctx, zerolog.New(os.Stderr).With().Timestamp().Logger()); err != nil {
		fmt.Fprintln(os.Stderr, "chaos worker:", err)
		os.Exit(1)
	}
	if err := leaked(goleak.IgnoreTopFunction("os/signal.loop"), goleak.IgnoreAnyFunction("os/signal.NotifyContext.func1")); err != nil {
		fmt.Fprintln(os.Stderr, "chaos worker:", err)
		os.Exit(leakedCode)
	}
	return nil
}

// leaked says which goroutines do not end, in time for the slowest: the Redis client's, where the server was away, sleep for a
// second between two tries, and notice only then that the client is closed.
func leaked(options ...goleak.Option) (err error) {
	for range 10 { // of half a second or so each
		if err = goleak.Find(options...); err == nil {
			return nil
		}
	}
	return err //nolint:wrapcheck // it says everything
}

func (s simWorker) work(ctx context.Context, log zerolog.Logger) error {
	engine, err := simwire.Dial(s.Engine)
	if err != nil {
		return fmt.Errorf("reach the simulated engine: %w", err)
	}
	defer engine.Close()
	calls, blocking, err := events.Open(s.Redis)
	if err != nil {
		return fmt.Errorf("open redis: %w", err)
	}
	defer func() { _ = errors.Join(calls.Close(), blocking.Close()) }()
	bus := events.New(calls, blocking, s.Times.bus(s.Cell, log))
	err = untilUp(ctx, events.ErrUnavailable, func() error { _, err := bus.Check(ctx); return err })
	if err != nil {
		return unlessToldToEnd(ctx, err)
	}
	registry := simwire.Engines(engine)
	var store state.Store
	err = untilUp(ctx, state.ErrUnavailable, func() (err error) {
		store, err = state.OpenPostgres(ctx, state.PostgresConfig{
			URL: s.Database, Catalog: state.Catalog{Services: registry.Names(), Features: registry.Allowed()},
		})
		return err
	})
	if err != nil {
		return unlessToldToEnd(ctx, err)
	}
	defer store.Close()
	log.Info().Msg("worker started")
	return worker.New(worker.Config{
		Bus: bus, Store: store, Engines: registry, Runtime: engine, Roles: []string{"developer", "qa"},
		Cell: s.Cell, Network: s.Network, Enabled: true, Slots: 8,
		Grace: s.Times.Grace, JanitorInterval: s.Times.Janitor, StopGrace: time.Millisecond, Drain: s.Times.Drain, Beat: s.Times.Beat, Log: log,
		Pool: s.Pool, PoolTick: s.Times.PoolTick, GiveWay: 4 * s.Times.PoolTick,
	}).Run(ctx)
}

// bus is the bus's configuration, audit and all.
func (t times) bus(cell string, log zerolog.Logger) events.Config {
	return events.Config{
		Cell: cell, Lease: t.Lease, ClaimIdle: t.ClaimIdle, Park: t.Park, TTL: t.TTL, Accept: t.Accept, Attempts: t.Attempts,
		Audit: true, Log: log,
	}
}

// unlessToldToEnd is err, or nil when the process was told to end before it had begun.
func unlessToldToEnd(ctx context.Context, err error) error {
	select {
	case <-ctx.Done():
		return nil
	default:
		return err
	}
}

// untilUp repeats what fails because a store does not answer, for as long as the server does.
func untilUp(ctx context.Context, down error, try func() error) error {
	const patience, pause = 15 * time.Second, 200 * time.Millisecond
	for over := time.Now().Add(patience); ; {
		err := try()
		if err == nil || !errors.Is(err, down) || time.Now().After(over) || !sleep(ctx, pause) {
			return err
		}
	}
}

// sleep waits; false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
