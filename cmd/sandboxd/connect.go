package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/state"
	"github.com/roboco/sandboxd/worker"
	"github.com/roboco/sandboxd/worker/docker"
)

const (
	// defaultPatience is long enough for a store, or an engine, that starts beside this process.
	defaultPatience = 15 * time.Second
	// firstPause and longestPause are those between two attempts; each is twice the one before it.
	firstPause, longestPause = 100 * time.Millisecond, 2 * time.Second
	// tellEvery is how often a wait is told of.
	tellEvery = 5 * time.Second
)

// eventually calls try until it succeeds, fails for good, or the patience is over; its error then is the last one.
func (p program) eventually(ctx context.Context, log zerolog.Logger, what string, isDown func(error) bool, try func(context.Context) error) error {
	patience := p.patience
	if patience == 0 {
		patience = defaultPatience
	}
	began := time.Now()
	over := time.NewTimer(patience)
	defer over.Stop()
	var told time.Time
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := try(ctx)
		if err == nil {
			if !told.IsZero() {
				log.Info().Dur("waited", time.Since(began)).Msg(what + " answers")
			}
			return nil
		}
		if !isDown(err) {
			return err
		}
		if time.Since(told) >= tellEvery {
			log.Warn().Err(err).Dur("waited", time.Since(began)).Dur("at_most", patience).Msg("waiting for " + what)
			told = time.Now()
		}
		select {
		case <-ctx.Done():
			return err
		case <-over.C:
			return fmt.Errorf("no answer within %s: %w", patience, err)
		case <-time.After(pause):
		}
	}
}

// openBus connects to Redis with two clients, one of them for reads that wait, and checks that it can be relied on.
func (p program) openBus(ctx context.Context, cfg config, log zerolog.Logger) (*events.Bus, func(), error) {
	conf, err := cfg.redisTLS()
	if err != nil {
		return nil, nil, err
	}
	calls, blocking, err := events.OpenTLS(cfg.RedisURL, conf)
	if err != nil {
		return nil, nil, &settingError{"ROBOCO_REDIS_URL", err.Error()}
	}
	closeBoth := func() { _ = errors.Join(calls.Close(), blocking.Close()) }
	bus := events.New(calls, blocking, tapBus(cfg.bus(log)))
	tapRedis(bus, calls, blocking)
	what := "redis at " + cfg.redisHost()
	if cfg.Audit {
		log.Warn().Msg("ROBOCO_SANDBOX_AUDIT is set: every step is kept in Redis and nothing of it is ever trimmed; this is for tests")
	}
	err = p.eventually(ctx, log, what, func(err error) bool { return errors.Is(err, events.ErrUnavailable) }, func(ctx context.Context) error {
		warnings, err := bus.Check(ctx)
		for _, w := range warnings {
			log.Warn().Str("redis", cfg.redisHost()).Msg(w)
		}
		return err
	})
	if err != nil {
		closeBoth()
		return nil, nil, fmt.Errorf("%s (ROBOCO_REDIS_URL): %w", what, err)
	}
	return bus, closeBoth, nil
}

// bus is the bus's configuration.
func (c config) bus(log zerolog.Logger) events.Config {
	cfg := events.Config{
		Cell: c.Cell, TTL: c.TTL, Accept: c.AcceptTimeout, Patience: c.QueueTimeout, Max: c.Max, AgentCap: c.AgentRequests,
		Audit: bool(c.Audit), Log: log,
	}
	if keys, err := c.sealKeys(); err == nil && keys != nil { // checked when the configuration was read
		cfg.Sealer = keys
	}
	return cfg
}

// redisHost is where Redis is, without the password.
func (c config) redisHost() string {
	u, err := url.Parse(c.RedisURL)
	switch {
	case err != nil:
		return "an unreadable address"
	case u.Host == "": // a unix socket
		return u.Path
	default:
		return u.Host
	}
}

// openStore connects to Postgres.
func (p program) openStore(ctx context.Context, cfg config, log zerolog.Logger) (state.Store, error) {
	what, err := cfg.database()
	if err != nil {
		return nil, err
	}
	var store state.Store
	err = p.eventually(ctx, log, what, func(err error) bool { return errors.Is(err, state.ErrUnavailable) }, func(ctx context.Context) (err error) {
		store, err = state.OpenPostgres(ctx, tapDatabase(state.PostgresConfig{URL: cfg.DatabaseURL, Catalog: catalog(cfg.registry())}))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s (ROBOCO_DATABASE_URL): %w", what, err)
	}
	return tapStore(store), nil
}

// database names the durable store without its password; a missing address is an error that names the variable.
func (c config) database() (string, error) {
	u, err := url.Parse(c.DatabaseURL)
	if c.DatabaseURL == "" || err != nil {
		return "", &settingError{"ROBOCO_DATABASE_URL", "is required: postgres://user:password@host:port/database"}
	}
	host := u.Host
	if host == "" {
		host = u.Query().Get("host")
	}
	return "postgres at " + host, nil
}

// catalog is what projects may be opted into.
func catalog(r engines.Registry) state.Catalog {
	return state.Catalog{Services: r.Names(), Features: r.Allowed()}
}

// containerEngine is what a worker process needs of the container engine.
type containerEngine interface {
	worker.Runtime
	// Endpoint is where it listens, for the log.
	Endpoint() string
	Close() error
}

// openDocker connects to the container engine.
func (p program) openDocker(ctx context.Context, cfg config, log zerolog.Logger) (*docker.Runtime, error) {
	folder := cfg.DockerConfig
	if folder == "" {
		if home, err := p.home(); err == nil { // without a home there is no context to look up
			folder = filepath.Join(home, ".docker")
		}
	}
	var runtime *docker.Runtime
	down := func(err error) bool { return errors.Is(err, engines.ErrUnavailable) }
	err := p.eventually(ctx, log, "the container engine", down, func(ctx context.Context) (err error) {
		runtime, err = docker.Open(ctx, docker.Config{
			Host: cfg.DockerHost, CertPath: cfg.DockerCerts, ConfigDir: folder, Context: cfg.DockerContext,
			Pulls: cfg.Pulls, FixedNetwork: !bool(cfg.NetworkCreate), Log: log,
		})
		return err
	})
	return runtime, err
}
