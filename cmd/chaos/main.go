// Command chaos lets agents live on a sandboxd of real processes while faults happen, and prints what came of it. It exits
// with 1 when the protocol was violated.
//
// `chaos inprocess` is the quick form: the workers' code in this process, over a real Redis alone.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/roboco/sandboxd/worker/workertest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	violations, err := command(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(2)
	}
	if violations > 0 {
		os.Exit(1)
	}
}

// command runs what the arguments ask for and returns how many violations there were.
func command(ctx context.Context, args []string) (violations int, err error) {
	switch {
	case len(args) > 0 && args[0] == workerCommand:
		return 0, runWorker(ctx)
	case len(args) > 0 && args[0] == "inprocess":
		return inProcess(ctx, args[1:], os.Stdout)
	default:
		return realProcesses(ctx, args, os.Stdout, os.Stderr)
	}
}

// realProcesses runs once per seed.
func realProcesses(ctx context.Context, args []string, out, progress io.Writer) (violations int, err error) {
	o, runs, err := parse(args)
	if err != nil {
		return 0, err
	}
	logging.Disable() // broken connections are the point
	o.Progress = progress
	for range runs {
		r, err := once(ctx, o)
		if err != nil {
			return violations, err
		}
		fmt.Fprint(out, r)
		violations += len(r.Violations)
		o.Seed++
	}
	return violations, nil
}

// Engines that a run may have.
const (
	engineSim  = "sim"
	engineReal = "real"
)

// options of a run.
type options struct {
	Seed     uint64 // reproduces the schedule of faults, and what agents want
	Duration time.Duration
	Mode     workertest.Mode
	Engine   string // engineSim or engineReal
	Workers  int
	Agents   int
	Gap      time.Duration // the longest pause between two faults
	Pool     string        // ready containers that workers keep, as ROBOCO_SANDBOX_POOL; empty: none
	Sandboxd string        // the server's binary
	Logs     string        // where the processes' logs go; empty: a folder that is kept where something was violated
	Progress io.Writer
}

// parse reads the flags. What is not set depends on the engine.
func parse(args []string) (o options, runs int, err error) {
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.Uint64Var(&o.Seed, "seed", uint64(time.Now().UnixNano()), "reproduces the schedule of faults and what agents want") //nolint:gosec // any number will do
	flags.DurationVar(&o.Duration, "duration", 0, "how long faults happen (10m)")
	mode := flags.String("mode", string(workertest.Kill), "calm, kill, or flush (kill with FLUSHALL)")
	flags.StringVar(&o.Engine, "engine", engineSim, "sim: a simulated container engine; real: Docker")
	flags.IntVar(&o.Workers, "workers", 3, "workers at once")
	flags.IntVar(&o.Agents, "agents", 0, "agents (sim 24, real 8)")
	flags.DurationVar(&o.Gap, "gap", 0, "the longest pause between two faults (sim 400ms, real 4s)")
	flags.StringVar(&o.Pool, "pool", "postgres=2,redis=2,mongo=1", "ready containers that workers keep, by engine; empty: none")
	flags.StringVar(&o.Sandboxd, "sandboxd", ".bin/sandboxd", "the server's binary")
	flags.StringVar(&o.Logs, "logs", "", "keep the processes' logs in this folder")
	flags.IntVar(&runs, "runs", 1, "how many runs, each with the next seed")
	if err := flags.Parse(args); err != nil {
		return o, 0, err //nolint:wrapcheck // it says everything
	}
	switch o.Mode = workertest.Mode(*mode); o.Mode {
	case workertest.Calm, workertest.Kill, workertest.Flush:
	default:
		return o, 0, fmt.Errorf("-mode %s: it is calm, kill or flush", *mode)
	}
	if _, err := poolSizes(o.Pool); err != nil {
		return o, 0, err
	}
	agents, gap := 24, 400*time.Millisecond
	switch o.Engine {
	case engineSim:
	case engineReal:
		agents, gap = 8, 4*time.Second
	default:
		return o, 0, fmt.Errorf("-engine %s: it is sim or real", o.Engine)
	}
	if o.Agents == 0 {
		o.Agents = agents
	}
	if o.Gap == 0 {
		o.Gap = gap
	}
	if o.Duration == 0 {
		o.Duration = 10 * time.Minute
	}
	if o.Workers < 1 || o.Agents < 1 || o.Gap < time.Millisecond || o.Duration < time.Second {
		return o, 0, fmt.Errorf("-workers, -agents, -gap and -duration must be more than nothing")
	}
	return o, runs, nil
}
