package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
)

// A pool holds containers that are ready before anybody asks: running, proven, and with a password that nobody has seen.
// One worker of each host keeps its pools; every worker of the host claims from them.
//
// planTicks is how many looks of the keeper a plan is good for: then projects and images are looked at anew, unless a project
// changes.
const planTicks = 10

// poolPrefix begins the name of every container that nobody has claimed. One that has another name was claimed once, and its
// password may have been seen.
const poolPrefix = sandboxPrefix + "pool-"

// pool is this worker's part in the pools of its host.
type pool struct {
	wake    chan struct{} // something was claimed, died or changed
	demand  *demand
	makers  sync.WaitGroup
	mu      sync.Mutex
	shelves []shelf // as last planned
	planned time.Time
	making  map[string]int     // containers under way, by pool
	young   map[string]bool    // their names
	again   map[string]retryAt // pools whose last refill failed
	took    map[string]float64 // seconds that a refill takes, by engine, smoothed
}

// retryAt is when a refill that failed is tried again.
type retryAt struct {
	wait time.Duration
	at   time.Time
}

func newPool() *pool {
	return &pool{
		wake: make(chan struct{}, 1), demand: newDemand(),
		making: map[string]int{}, young: map[string]bool{}, again: map[string]retryAt{}, took: map[string]float64{},
	}
}

// stir wakes the keeper.
func (p *pool) stir() {
	select {
	case p.wake <- struct{}{}:
	default: // it is awake
	}
}

// replan has projects and images looked at anew.
func (p *pool) replan() {
	p.mu.Lock()
	p.planned = time.Time{}
	p.mu.Unlock()
	p.stir()
}

// keepPools tends the pools of this host for as long as this worker is the one that keeps them. A worker that has no pool of
// its own keeps them too: what another configuration has left is to go.
func (w *Worker) keepPools(ctx context.Context) {
	tick := w.cfg.PoolTick
	if len(w.cfg.Pool) == 0 {
		tick = w.cfg.JanitorInterval
	}
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		w.contained("tending the pools", func() {
			if err := w.keep(ctx, 10*tick); err != nil && ctx.Err() == nil {
				w.cfg.Log.Warn().Err(err).Msg("the pools were not tended")
			}
		})
		select {
		case <-ctx.Done():
			w.pool.makers.Wait()
			return
		case <-t.C:
		case <-w.pool.wake:
		}
	}
}

// keep does so once. A keeper that does not come again within its life is followed by another worker.
func (w *Worker) keep(ctx context.Context, life time.Duration) error {
	keeper, err := w.cfg.Bus.Keep(ctx, w.host, w.cfg.Name, life)
	if err != nil {
		return fmt.Errorf("ask who keeps the pools: %w", err)
	}
	shelves, err := w.plan(ctx) // who does not keep them claims from them
	if err != nil || !keeper {
		return err
	}
	return w.tend(ctx, shelves)
}

// closePools gives the keeping up at the end of this worker. The last one of its host takes the pools down.
func (w *Worker) closePools() {
	ctx, cancel := context.WithTimeout(context.Background(), settleWithin)
	defer cancel()
	last, err := w.cfg.Bus.Unkeep(ctx, w.host, w.cfg.Name)
	if err == nil && last {
		var idle []engines.Container
		if idle, err = w.idle(ctx); err == nil {
			w.retireAll(ctx, idle)
		}
	}
	if err != nil {
		w.cfg.Log.Warn().Err(err).Msg("the pools are left to whoever keeps them next")
	}
}

// idle lists the containers of this cell that were born in a pool, and that nobody has claimed.
func (w *Worker) idle(ctx context.Context) ([]engines.Container, error) {
	cs, err := w.cfg.Runtime.List(ctx, w.cellLabels())
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	cs = slices.DeleteFunc(cs, func(c engines.Container) bool { return !pooled(c) })
	whose, err := w.identifyAll(ctx, cs)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(cs, func(c engines.Container) bool { return whose[c.ID].Slug != "" }), nil
}

// retireAll removes these, side by side, unless somebody claims one at the last moment. It returns how many it removed.
func (w *Worker) retireAll(ctx context.Context, idle []engines.Container) (n int) {
	var removals together
	gone := make([]bool, len(idle))
	for i, c := range idle {
		removals.Go(func() {
			fate, err := w.remove(ctx, c.ID, "", reasonPool)
			if err != nil && !errors.Is(err, context.Canceled) {
				w.cfg.Log.Warn().Err(err).Str("container", c.Name).Msg("a container of the pool is left for the next look")
			}
			gone[i] = err == nil && fate == events.FateDead
		})
	}
	removals.Wait()
	for _, g := range gone {
		if g {
			n++
		}
	}
	return n
}

// poolOf is the pool that a container was born in.
func (w *Worker) poolOf(c engines.Container) events.Pool {
	kind, features, _ := strings.Cut(c.Labels[labelPool], ":")
	p := events.Pool{Host: w.host, Engine: c.Labels[labelEngine], Make: kind}
	if features != "" {
		p.Features = strings.Split(features, ",")
	}
	return p
}

// poolLabels are what a container of a pool is born with.
func (w *Worker) poolLabels(p events.Pool) map[string]string {
	m := w.cellLabels()
	m[labelEngine] = p.Engine
	m[labelPool] = p.Make + ":" + strings.Join(p.Features, ",")
	w.composeLabels(m)
	return m
}

// poolKey tells the pools of one host apart.
func poolKey(p events.Pool) string {
	return p.Engine + ":" + p.Make + ":" + strings.Join(p.Features, ",")
}
