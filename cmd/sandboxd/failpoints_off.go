//go:build !failpoints

package main

import (
	"context"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/state"
	"github.com/roboco/sandboxd/worker"
)

// In the product nothing stands between a process and what it calls; failpoints_on.go is for the crash matrix.

func tapBus(c events.Config) events.Config { return c }

func tapRedis(*events.Bus, ...redis.UniversalClient) {}

func tapDatabase(c state.PostgresConfig) state.PostgresConfig { return c }

func tapStore(s state.Store) state.Store { return s }

func tapWorker(c worker.Config) worker.Config { return c }

// openEngine connects to the container engine.
func (p program) openEngine(ctx context.Context, cfg config, log zerolog.Logger) (containerEngine, error) {
	rt, err := p.openDocker(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	return rt, nil
}
