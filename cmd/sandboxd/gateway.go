package main

import (
	"context"
	"fmt"
	"net"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/state"
	"github.com/roboco/sandboxd/verbs"
)

// runGateway is `sandboxd gateway`.
func (p program) runGateway(ctx context.Context, cfg config, log zerolog.Logger) error {
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
	l, err := listen(ctx, cfg.Listen, "ROBOCO_SANDBOX_LISTEN")
	if err != nil {
		return err
	}
	if l, err = cfg.secured(l); err != nil {
		return err
	}
	gateway, err := verbs.New(cfg.gateway(bus, store, prometheus.NewRegistry(), log))
	if err != nil {
		return fmt.Errorf("gateway: %w", err)
	}
	if cfg.OperatorToken == "" {
		log.Warn().Msg("ROBOCO_SANDBOX_OPERATOR_TOKEN is not set: only operators made earlier can make agents")
	}
	log.Info().Str("listen", l.Addr().String()).Bool("tls", cfg.TLSCert != "").Str("cell", cfg.Cell).Msg("gateway started")
	if err := serveGateway(ctx, cfg, gateway, l); err != nil {
		return err
	}
	log.Info().Msg("gateway drained")
	return nil
}

// serveGateway answers on l until ctx ends. Replies are read for as long as calls are under way.
func serveGateway(ctx context.Context, cfg config, gateway *verbs.Gateway, l net.Listener) error {
	reading, stopReading := context.WithCancel(context.WithoutCancel(ctx))
	defer stopReading()
	group, gctx := errgroup.WithContext(ctx)
	group.Go(func() error { return gateway.Run(reading) })
	group.Go(func() error {
		defer stopReading()
		return serve(gctx, l, gateway.Handler(), cfg.Drain)
	})
	if err := firstOf(group.Wait()); err != nil {
		return fmt.Errorf("gateway: %w", err)
	}
	return nil
}

// gateway is the gateway's configuration.
func (c config) gateway(bus *events.Bus, store state.Store, metrics *prometheus.Registry, log zerolog.Logger) verbs.Config {
	return verbs.Config{
		Bus: bus, Store: store, Engines: c.registry(), OperatorToken: c.OperatorToken, Rate: c.Rate, Enabled: bool(c.Enabled),
		AcceptTimeout: c.AcceptTimeout, Memory: int64(c.Memory), Version: version(), Log: log, Register: metrics,
	}
}
