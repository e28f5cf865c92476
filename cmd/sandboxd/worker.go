package main

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/state"
	"github.com/roboco/sandboxd/verbs"
	"github.com/roboco/sandboxd/worker"
)

// runWorker is `sandboxd worker`.
func (p program) runWorker(ctx context.Context, cfg config, log zerolog.Logger) error {
	runtime, err := p.openEngine(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer func() { _ = runtime.Close() }()
	bus, closeBus, err := p.openBus(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer closeBus()
	store, err := p.openStore(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer store.Close()
	l, err := listen(ctx, cfg.WorkerListen, "ROBOCO_SANDBOX_WORKER_LISTEN")
	if err != nil {
		return err
	}

	metrics := prometheus.NewRegistry()
	w := worker.New(tapWorker(cfg.worker(bus, store, runtime, metrics, log)))
	checks := []check{{"redis", bus.Ping}, {"postgres", store.Ping}, {"container engine", runtime.Ping}}
	log.Info().Str("probes", l.Addr().String()).Str("engine", runtime.Endpoint()).Str("cell", cfg.Cell).Msg("worker started")
	group, gctx := errgroup.WithContext(ctx)
	group.Go(func() error { return w.Run(gctx) })
	group.Go(func() error { return serve(gctx, l, probes(checks, metrics, log), 0) })
	if err := firstOf(group.Wait()); err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	log.Info().Msg("worker drained")
	return nil
}

// worker is the worker's configuration.
func (c config) worker(bus *events.Bus, store state.Store, rt worker.Runtime, metrics prometheus.Registerer, log zerolog.Logger) worker.Config {
	return worker.Config{
		Bus: bus, Store: store, Engines: c.registry(), Runtime: rt, Roles: verbs.DefaultRoles()[verbs.RequestSandbox],
		Cell: c.Cell, ComposeProject: c.ComposeProject,
		Network: c.Network, Memory: int64(c.Memory), NanoCPUs: int64(c.CPUs), Pids: c.Pids,
		Loopback: c.Publish == publishLoopback, ForceLease: c.Owner == ownerLease, Enabled: bool(c.Enabled),
		Slots: c.Slots, Creates: c.Creates, MemoryTotal: int64(c.MemoryTotal), QueueTimeout: c.QueueTimeout,
		Pool: c.Pool, Grace: c.Grace, JanitorInterval: c.JanitorInterval, Drain: c.Drain, Retain: c.Retain,
		Unprimed: c.Primed == primedOff,
		Log:      log, Register: metrics,
	}
}
