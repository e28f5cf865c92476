package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"
)

// step is one thing that each round measures.
type step struct {
	thing

	do func(context.Context) error
}

// rounds measures everything in turn, round for round, so that what else the machine does meets all alike.
func (b *bench) rounds(ctx context.Context) error {
	steps, err := b.steps(ctx)
	if err != nil {
		return err
	}
	for i := range b.options.rounds {
		fmt.Fprintf(os.Stderr, "  round %d of %d\n", i+1, b.options.rounds)
		for _, s := range steps {
			if err := s.do(ctx); err != nil {
				return fmt.Errorf("%s %s: %w", s.set, s.way, err)
			}
		}
	}
	return nil
}

func (b *bench) steps(ctx context.Context) ([]step, error) {
	all := b.floorSteps()
	for _, w := range ways() {
		p, err := b.at(ctx, w)
		if err != nil {
			return nil, err
		}
		c, err := p.caller(ctx, "rounds")
		if err != nil {
			return nil, err
		}
		for _, s := range b.sets {
			all = append(all, step{thing{s.name, w.name}, func(ctx context.Context) error { return c.round(ctx, s, w) }})
		}
	}
	peers, err := b.peerSteps(ctx)
	return append(all, peers...), err
}

// round is a sandbox from the first call to nothing left. A pool is waited for before, so that it serves, and after, so that
// its filling is no other step's noise.
func (c *caller) round(ctx context.Context, s set, w way) (err error) {
	defer func() {
		if err == nil {
			err = c.full(ctx, s)
		}
	}()
	if err := c.full(ctx, s); err != nil {
		return err
	}
	if err := c.begin(ctx, s); err != nil {
		return err
	}
	took, err := c.request(ctx, w.outcome())
	if err != nil {
		return err
	}
	c.found.add(thing{s.name, w.name}, took)
	if w.primed && len(w.pool) == 0 {
		if err := c.provePrimed(ctx); err != nil {
			return err
		}
	}
	if w.name == ways()[0].name {
		for range c.hits {
			took, err := c.request(ctx, "reused")
			if err != nil {
				return err
			}
			c.found.add(thing{s.name, hit}, took)
		}
	}
	took, err = c.release(ctx)
	if s.name == setFull && w.name == upstream {
		c.found.add(thing{"", releaseOf}, took)
	}
	return err
}

// outcome is what evidence says of a container that came about this way.
func (w way) outcome() string {
	if w.name == pooled {
		return "pooled"
	}
	return "created"
}

// peerSteps are the same sets of each peer, without features, which they know nothing of.
func (b *bench) peerSteps(ctx context.Context) ([]step, error) {
	if b.peers == "" {
		return nil, nil
	}
	if err := b.startPeers(ctx); err != nil {
		return nil, err
	}
	var all []step
	for _, name := range peerNames() {
		for _, s := range b.sets {
			if s.features != nil {
				continue
			}
			t := thing{s.name, name}
			all = append(all, step{t, func(ctx context.Context) error {
				took, err := b.peer.measure(ctx, name, s)
				if err == nil {
					b.found.add(t, took)
				}
				return err
			}})
		}
	}
	return all, nil
}

// slowest is the p50 of the slowest engine alone, come about this way.
func (f *findings) slowest(way string) time.Duration {
	return slices.Max([]time.Duration{f.p50(setPostgres, way), f.p50(setRedis, way), f.p50(setMongo, way)})
}
