package main

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/roboco/sandboxd/engines"
)

// floorSteps are what the container engine takes for containers of the same limits that do nothing.
func (b *bench) floorSteps() []step {
	cell := b.cell("floor")
	return []step{
		{thing{"", floorOne}, func(ctx context.Context) error {
			took, ids, err := b.bare(ctx, 1, trivialOnes(cell, 1))
			if err != nil {
				return err
			}
			b.found.add(thing{"", floorOne}, took)
			t := time.Now()
			if err := b.runtime.Remove(ctx, ids[0], 0); err != nil {
				return fmt.Errorf("remove: %w", err)
			}
			b.found.add(thing{"", removal}, time.Since(t))
			return nil
		}},
		{thing{"", floorThree}, func(ctx context.Context) error {
			took, ids, err := b.bare(ctx, 3, trivialOnes(cell, 3))
			if err != nil {
				return err
			}
			b.found.add(thing{"", floorThree}, took)
			return b.removeAll(ctx, ids)
		}},
	}
}

// trivialOnes are containers that sleep.
func trivialOnes(cell string, n int) []engines.Launch {
	all := make([]engines.Launch, n)
	for i := range all {
		all[i] = engines.Launch{
			Spec: engines.Spec{Image: trivial, Entrypoint: []string{"sleep"}, Cmd: []string{"600"}},
			Name: "sandboxd-bench-" + uuid.NewString(), Labels: map[string]string{cellLabel: cell},
		}
	}
	return all
}

// bare makes and starts containers, so many at once, and asks nothing of them: no protocol, no proof.
func (b *bench) bare(ctx context.Context, atOnce int, launches []engines.Launch) (took time.Duration, ids []string, err error) {
	ids = make([]string, len(launches))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	t := time.Now()
	for i, l := range launches {
		g.Go(func() (err error) {
			ids[i], err = b.launch(gctx, l)
			return err
		})
	}
	err = g.Wait()
	return time.Since(t), ids, err
}

// removeAll removes by force, a few at once.
func (b *bench) removeAll(ctx context.Context, ids []string) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(creates())
	for _, id := range ids {
		g.Go(func() error { return b.runtime.Remove(gctx, id, 0) })
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("remove: %w", err)
	}
	return nil
}
