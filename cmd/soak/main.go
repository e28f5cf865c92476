// Command soak lets agents ask, ask again and end their work a hundred thousand times on one running system, and compares
// what the first and the last tenth took: Redis's memory, goroutines, open files. The container engine is simulated; Redis,
// worker, gateway and every call over HTTP are real. What is kept for a day is kept for seconds here, so that it would show.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/roboco/sandboxd/cmd/internal/system"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/worker"
	"github.com/roboco/sandboxd/worker/workertest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	flat, err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(2)
	}
	if !flat {
		os.Exit(1)
	}
}

// What the product keeps for an hour and for a day.
const (
	replyTTL = 2 * time.Second
	remember = 4 * time.Second
)

// run soaks, prints the table, and reports whether everything stayed flat.
func run(ctx context.Context, args []string, out, progress io.Writer) (flat bool, err error) {
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	var o options
	flags.Int64Var(&o.requests, "requests", 100_000, "how many requests")
	flags.IntVar(&o.agents, "agents", 16, "agents at once")
	flags.IntVar(&o.hits, "hits", 8, "hits after each provision")
	flags.IntVar(&o.workers, "workers", 2, "workers")
	flags.Float64Var(&o.within, "within", 5, "percent by which the last tenth may exceed the first")
	if err := flags.Parse(args); err != nil {
		return false, err //nolint:wrapcheck // it says everything
	}
	if o.requests < 100 || o.agents < 1 || o.hits < 0 || o.workers < 1 {
		return false, fmt.Errorf("at least 100 requests, 1 agent, 1 worker and 0 hits are needed")
	}
	redis, err := workertest.RedisContainer(ctx, fmt.Sprintf("sandboxd-soak-%d", os.Getpid()))
	if err != nil {
		return false, fmt.Errorf("start redis: %w", err)
	}
	defer func() { _ = redis.Close() }()
	sim := workertest.NewSim(workertest.SimConfig{Seed: 1, Jitter: time.Millisecond, PullTo: time.Millisecond, ReadyFrom: time.Millisecond, ReadyTo: 5 * time.Millisecond})
	defer sim.Close()
	s, err := system.Start(ctx, system.Config{
		Redis: redis.Addr(), Runtime: sim, Engines: workertest.Engines(sim), Network: "simulated", Workers: o.workers,
		Bus:    events.Config{Cell: "soak", ReplyTTL: replyTTL, Remember: remember, TTL: time.Hour},
		Change: func(c *worker.Config) { c.JanitorInterval, c.Retain, c.ForceLease = time.Second, time.Second, true },
	})
	if err != nil {
		return false, fmt.Errorf("start the system: %w", err)
	}
	defer func() { _ = s.Stop() }()
	soak := newSoak(o, s, redis.Addr())
	defer soak.close()
	if err := soak.live(ctx, progress); err != nil {
		return false, err
	}
	return soak.report(out), nil
}
