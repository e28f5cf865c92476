package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/roboco/sandboxd/engines"
)

// crowdFinding is what agents that ask for the full set at once have met.
type crowdFinding struct {
	agents, pooled int // agents, and sets that the pool had when they came
	answered       int
	took           samples
	outcomes       map[string]int // of their engines
	failed         []string       // why, of those that were not answered
	// bare is what so many plain starts of the containers that the pool had not took, as many at once as a worker makes: the mean
	// of one time before and one after.
	bare       time.Duration
	containers int
}

// crowd lets agents ask for the full set at once. Before and after, it starts as many containers as have to be made for them,
// plainly: the same images, commands and limits, as many at once as a worker makes, and no question asked of any.
func (b *bench) crowd(ctx context.Context) error {
	if _, err := b.at(ctx, primedWay()); err != nil { // what is made of primed images finds them there
		return err
	}
	f := &crowdFinding{agents: b.agents, pooled: pooledSets, outcomes: map[string]int{}}
	before, err := b.plain(ctx, f.agents-f.pooled)
	if err != nil {
		return err
	}
	p, err := b.start(ctx, crowdWay(), "crowd")
	if err != nil {
		return err
	}
	agents, err := p.callers(ctx, f.agents, fullSet())
	if err != nil {
		return err
	}
	if err := p.full(ctx, fullSet()); err != nil {
		return err
	}
	f.meet(ctx, agents)
	if err := p.stop(); err != nil { // or the pool would fill again beside what is measured next
		return fmt.Errorf("stop the crowd's system: %w", err)
	}
	if err := b.sweepCell(ctx, p.cell); err != nil {
		return err
	}
	after, err := b.plain(ctx, f.agents-f.pooled)
	if err != nil {
		return err
	}
	f.bare, f.containers, b.found.crowd = (before+after)/2, (f.agents-f.pooled)*len(fullSet().engines), f
	return nil
}

// plain times plain starts of the containers of so many full sets.
func (b *bench) plain(ctx context.Context, n int) (time.Duration, error) {
	launches, err := b.remaining(ctx, n)
	if err != nil {
		return 0, err
	}
	took, ids, err := b.bare(ctx, creates(), launches)
	if err != nil {
		return 0, err
	}
	return took, b.removeAll(ctx, ids)
}

// callers makes agents that work on a project with this set each.
func (p *place) callers(ctx context.Context, n int, s set) ([]*caller, error) {
	if err := p.opt(ctx, s); err != nil {
		return nil, err
	}
	var all []*caller
	for i := range n {
		c, err := p.caller(ctx, fmt.Sprintf("a%d", i))
		if err != nil {
			return nil, err
		}
		if err := c.begin(ctx, s); err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// meet lets all of them ask at the same moment.
func (f *crowdFinding) meet(ctx context.Context, agents []*caller) {
	var (
		mu    sync.Mutex
		wg    sync.WaitGroup
		start = make(chan struct{})
	)
	for _, c := range agents {
		wg.Go(func() {
			<-start
			env, took, err := c.sandbox(ctx)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				f.failed = append(f.failed, err.Error())
				return
			}
			f.answered++
			f.took = append(f.took, took)
			for _, e := range env.Evidence {
				f.outcomes[e.Outcome]++
			}
		})
	}
	close(start)
	wg.Wait()
}

// remaining are the containers of so many full sets, as a worker would make them.
func (b *bench) remaining(ctx context.Context, n int) ([]engines.Launch, error) {
	cell := b.cell("bare")
	var all []engines.Launch
	for range n {
		for _, e := range engines.Builtin() {
			if !slices.Contains(fullSet().engines, e.Name) {
				continue
			}
			spec, err := b.spec(ctx, e)
			if err != nil {
				return nil, err
			}
			all = append(all, engines.Launch{Spec: spec, Name: "sandboxd-bench-" + uuid.NewString(), Labels: map[string]string{cellLabel: cell}})
		}
	}
	return all, nil
}

// spec is a container of this engine, primed where it can be.
func (b *bench) spec(ctx context.Context, e engines.Engine) (engines.Spec, error) {
	secret := strings.ReplaceAll(uuid.NewString(), "-", "")
	o := engines.Order{Image: e.Image(nil), Memory: memoryLimit, Password: secret, AdminPassword: secret}
	if e.Primed == nil {
		return e.Describe(o), nil
	}
	id, err := b.runtime.ImageID(ctx, o.Image)
	if err != nil {
		return engines.Spec{}, fmt.Errorf("look at image %s: %w", o.Image, err)
	}
	o.Image = e.Derivation(o.Image, id).Tag
	return e.Primed.Describe(o), nil
}

// sweepCell removes every container of a cell that nobody serves any more.
func (b *bench) sweepCell(ctx context.Context, cell string) error {
	left, err := b.runtime.List(ctx, map[string]string{"roboco.sandbox": "1", cellLabel: cell})
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	ids := map[string]bool{}
	for _, c := range left {
		ids[c.ID] = true
	}
	return b.removeAll(ctx, slices.Sorted(maps.Keys(ids)))
}

// together does one thing for each of the callers, a few at once.
func together(ctx context.Context, all []*caller, do func(context.Context, *caller) error) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(creates())
	for _, c := range all {
		g.Go(func() error { return do(gctx, c) })
	}
	return g.Wait() //nolint:wrapcheck // it is our own
}
