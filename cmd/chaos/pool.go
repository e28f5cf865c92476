package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/roboco/sandboxd/worker"
	"github.com/roboco/sandboxd/worker/workertest"
)

// poolSizes reads how many ready containers workers keep, as in redis=2,mongo=1. An empty text is none.
func poolSizes(text string) (map[string]worker.PoolSize, error) {
	sizes := map[string]worker.PoolSize{}
	if text == "" {
		return sizes, nil
	}
	for item := range strings.SplitSeq(text, ",") {
		engine, size, _ := strings.Cut(item, "=")
		n, err := strconv.Atoi(size)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("-pool %s: write an engine and how many, as in redis=2", item)
		}
		sizes[engine] = worker.PoolSize{Floor: n, Ceiling: n}
	}
	return sizes, nil
}

// ceilings are how many ready containers there may be, by engine.
func (r *run) ceilings() map[string]int {
	most := map[string]int{}
	sizes, _ := poolSizes(r.o.Pool) // parse has read it before
	for engine, size := range sizes {
		most[engine] = size.Ceiling
	}
	return most
}

// poolsAreGone: with the last worker the pools have been taken down.
func (r *run) poolsAreGone(ctx context.Context) error {
	left, err := r.place.containers(ctx)
	if err != nil {
		return err
	}
	for _, c := range left {
		if workertest.Waits(c) {
			r.facts.bad("P4", "%s is left with no worker to claim it", c.Name)
		}
	}
	return nil
}
