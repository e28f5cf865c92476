package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/roboco/sandboxd/cmd/internal/system"
	"github.com/roboco/sandboxd/worker"
	"github.com/roboco/sandboxd/worker/workertest"
)

// throughputFinding is what many callers at once get out of one gateway and so many workers.
type throughputFinding struct {
	workers, callers, alive int
	hits                    int
	over                    time.Duration
	took                    samples
}

func (f throughputFinding) perSecond() float64 { return float64(f.hits) / f.over.Seconds() }

const callersAtOnce = 64

func workerCounts() []int { return []int{1, 2, 4} }

// throughput counts hits with the simulated engine: Redis, workers, the gateway and every call over HTTP are real, and share
// this machine's processors with the callers.
func (b *bench) throughput(ctx context.Context) error {
	for _, n := range workerCounts() {
		f, err := b.simulated(ctx, n, callersAtOnce)
		if err != nil {
			return err
		}
		b.found.hits = append(b.found.hits, f)
	}
	return nil
}

// simulated counts the hits of many callers while so many sandboxes are alive.
func (b *bench) simulated(ctx context.Context, workers, alive int) (f throughputFinding, err error) {
	sim := workertest.NewSim(workertest.SimConfig{Seed: 1, Jitter: time.Millisecond, PullTo: time.Millisecond, ReadyFrom: time.Millisecond, ReadyTo: 5 * time.Millisecond})
	defer sim.Close()
	p := &place{bench: b, cell: b.cell(fmt.Sprintf("sim%d-%d", workers, alive))}
	err = p.serve(ctx, system.Config{
		Runtime: sim, Engines: workertest.Engines(sim), Network: "simulated", Workers: workers,
		Change: func(c *worker.Config) { c.ForceLease = true },
	})
	if err != nil {
		return f, err
	}
	defer func() {
		if serr := p.stop(); err == nil && serr != nil {
			err = fmt.Errorf("stop the simulated system: %w", serr)
		}
	}()
	agents, err := p.callers(ctx, alive, fullSet())
	if err != nil {
		return f, err
	}
	err = together(ctx, agents, func(ctx context.Context, c *caller) error {
		_, err := c.request(ctx, "")
		return err
	})
	if err != nil {
		return f, err
	}
	f = throughputFinding{workers: workers, callers: callersAtOnce, alive: alive}
	return f, f.count(ctx, agents, b.throughputFor)
}

// count lets the callers ask again and again, in turn as one of the agents.
func (f *throughputFinding) count(ctx context.Context, agents []*caller, during time.Duration) error {
	var mu sync.Mutex
	g, gctx := errgroup.WithContext(ctx)
	began := time.Now()
	for i := range f.callers {
		g.Go(func() error {
			var mine samples
			for time.Since(began) < during {
				took, err := agents[i%len(agents)].request(gctx, "reused")
				if err != nil {
					return err
				}
				mine = append(mine, took)
			}
			mu.Lock()
			f.took = append(f.took, mine...)
			mu.Unlock()
			return nil
		})
	}
	err := g.Wait()
	f.hits, f.over = len(f.took), time.Since(began)
	return err //nolint:wrapcheck // it is our own
}
