package system

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
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
)

// Config of a system.
type Config struct {
	Redis   string // host:port
	Runtime worker.Runtime
	Engines engines.Registry
	Bus     events.Config // Cell is its cell
	Network string
	Workers int // at least one
	// Change is what a worker has that is not the default; nil for nothing.
	Change func(*worker.Config)
}

// System is one that runs.
type System struct {
	URL      string // of its gateway
	Operator string // the operator's token
	Store    state.Store

	cancel  context.CancelFunc
	server  *http.Server
	running chan error // one value for each part
	parts   int
	clients []*redis.Client
}

// Start brings a system up; on an error nothing of it is left. It is to be stopped.
func Start(ctx context.Context, cfg Config) (*System, error) {
	s := &System{
		Operator: uuid.NewString(), running: make(chan error, cfg.Workers+2),
		Store: state.NewMemory(state.Catalog{Services: cfg.Engines.Names(), Features: cfg.Engines.Allowed()}),
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel = cancel
	if err := s.start(ctx, run, cfg); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *System) start(ctx, run context.Context, cfg Config) error {
	for range max(cfg.Workers, 1) {
		bus, err := s.bus(ctx, cfg)
		if err != nil {
			return err
		}
		wcfg := worker.Config{
			Bus: bus, Store: s.Store, Engines: cfg.Engines, Runtime: cfg.Runtime, Roles: verbs.DefaultRoles()[verbs.RequestSandbox],
			Cell: cfg.Bus.Cell, Network: cfg.Network, Enabled: true, Log: zerolog.Nop(),
		}
		if cfg.Change != nil {
			cfg.Change(&wcfg)
		}
		w := worker.New(wcfg)
		s.part(func() error { return w.Run(run) })
	}
	bus, err := s.bus(ctx, cfg)
	if err != nil {
		return err
	}
	g, err := verbs.New(verbs.Config{
		Bus: bus, Store: s.Store, Engines: cfg.Engines, OperatorToken: s.Operator, Enabled: true, Log: zerolog.Nop(),
	})
	if err != nil {
		return fmt.Errorf("gateway: %w", err)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	s.server = &http.Server{Handler: g.Handler(), ReadHeaderTimeout: 5 * time.Second}
	s.part(func() error { return g.Run(run) })
	s.part(func() error { return s.server.Serve(l) })
	s.URL = "http://" + l.Addr().String()
	return nil
}

func (s *System) part(f func() error) {
	s.parts++
	go func() { s.running <- f() }()
}

// bus gives each part clients of its own, as processes of its own would have.
func (s *System) bus(ctx context.Context, cfg Config) (*events.Bus, error) {
	// Full pools from the start: what grows later is no pool that warms up.
	open := func() *redis.Client {
		return redis.NewClient(&redis.Options{Addr: cfg.Redis, PoolSize: 16, MinIdleConns: 16, Protocol: 2})
	}
	calls, blocking := open(), open()
	s.clients = append(s.clients, calls, blocking)
	bus := events.New(calls, blocking, cfg.Bus)
	if _, err := bus.Check(ctx); err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	return bus, nil
}

// Client calls the gateway with this token.
func (s *System) Client(token string) (*client.Client, error) {
	c, err := client.New(client.Config{URL: s.URL, Token: token})
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	return c, nil
}

// Agent makes an agent and gives its token.
func (s *System) Agent(ctx context.Context, slug, role string) (token string, err error) {
	op, err := s.Client(s.Operator)
	if err != nil {
		return "", err
	}
	made, err := op.CreateAgent(ctx, slug, role)
	if err != nil {
		return "", fmt.Errorf("make agent %s: %w", slug, err)
	}
	return made.Token, nil
}

// Stop takes it down. Sandboxes that live are left to whoever owns the container engine.
func (s *System) Stop() error {
	s.cancel()
	var errs []error
	if s.server != nil {
		errs = append(errs, s.server.Close())
	}
	for range s.parts {
		if err := <-s.running; err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, context.Canceled) {
			errs = append(errs, err)
		}
	}
	for _, c := range s.clients {
		errs = append(errs, c.Close())
	}
	s.Store.Close()
	return errors.Join(errs...)
}
