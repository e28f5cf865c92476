package worker_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/worker"
)

// waking is a container engine that does not answer the first calls.
type waking struct {
	worker.Runtime

	asleep atomic.Int32 // calls that are not answered yet
}

func (w *waking) HostID(ctx context.Context) (string, error) {
	if w.asleep.Add(-1) >= 0 {
		return "", fmt.Errorf("ask: %w", engines.ErrUnavailable)
	}
	return w.Runtime.HostID(ctx)
}

func TestWorkerWaitsForItsEngine(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	rt := &waking{Runtime: r.runtime}
	rt.asleep.Store(3)
	r.worker(func(c *worker.Config) { c.Runtime = rt })
	r.project("shop", []string{"redis"}, nil)
	r.start(r.slug("a"), "T-1", "shop")
	r.request(r.slug("a"), "redis")

	rt = &waking{Runtime: r.runtime}
	rt.asleep.Store(1_000_000)
	cfg := r.cfg
	cfg.Bus, cfg.Runtime, cfg.StartWithin = r.newBus(t), rt, time.Millisecond
	require.ErrorIs(t, worker.New(cfg).Run(t.Context()), engines.ErrUnavailable, "not for ever")
}
