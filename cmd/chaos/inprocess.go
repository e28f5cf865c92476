package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"github.com/rs/zerolog"

	"github.com/roboco/sandboxd/worker/workertest"
)

// inProcess parses args, runs once per seed and returns how many violations there were.
func inProcess(ctx context.Context, args []string, out io.Writer) (violations int, err error) {
	var o workertest.Options
	flags := flag.NewFlagSet("chaos inprocess", flag.ContinueOnError)
	flags.Uint64Var(&o.Seed, "seed", uint64(time.Now().UnixNano()), "reproduces the schedule") //nolint:gosec // any number will do
	flags.DurationVar(&o.Duration, "duration", time.Minute, "how long faults happen")
	mode := flags.String("mode", string(workertest.Kill), "calm, kill or flush")
	flags.IntVar(&o.Workers, "workers", 6, "workers at once")
	flags.IntVar(&o.Agents, "agents", 24, "agents")
	flags.DurationVar(&o.Gap, "gap", 100*time.Millisecond, "the longest pause between two faults")
	pool := flags.String("pool", "postgres=2,redis=2,mongo=2", "ready containers that workers keep, by engine; empty: none")
	runs := flags.Int("runs", 1, "how many runs, each with the next seed")
	binary := flags.Bool("binary", false, "use the redis-server on the PATH instead of a container")
	log := flags.String("log", "", "write the workers' log to this file")
	if err := flags.Parse(args); err != nil {
		return 0, err //nolint:wrapcheck // it says everything
	}
	if o.Pool, err = poolSizes(*pool); err != nil {
		return 0, err
	}
	logging.Disable() // broken connections are the point
	o.Mode, o.Log = workertest.Mode(*mode), zerolog.Nop()
	if *log != "" {
		f, err := os.Create(*log)
		if err != nil {
			return 0, fmt.Errorf("open the log: %w", err)
		}
		defer f.Close()
		o.Log = zerolog.New(f).With().Timestamp().Logger()
	}
	for range *runs {
		n, err := onceInProcess(ctx, o, *binary, out)
		if err != nil {
			return violations, err
		}
		violations += n
		o.Seed++
	}
	return violations, nil
}

// onceInProcess makes one run on a Redis of its own.
func onceInProcess(ctx context.Context, o workertest.Options, binary bool, out io.Writer) (violations int, err error) {
	dir, err := os.MkdirTemp("", "chaos-redis-")
	if err != nil {
		return 0, fmt.Errorf("make a directory: %w", err)
	}
	defer os.RemoveAll(dir)
	if binary {
		o.Redis, err = workertest.RedisBinary(ctx, dir)
	} else {
		o.Redis, err = workertest.RedisContainer(ctx, fmt.Sprintf("chaos-redis-%d", os.Getpid()))
	}
	if err != nil {
		return 0, err
	}
	defer o.Redis.Close()
	r, err := workertest.Chaos(ctx, o)
	if err != nil {
		return 0, err
	}
	fmt.Fprint(out, r)
	return len(r.Violations), nil
}
