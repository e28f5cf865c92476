package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/redis/go-redis/v9"
)

// growthFinding is what things take while so many sandboxes are alive: real ones, of redis alone, for what the container
// engine has a part in, and as many simulated full sets for hits a second.
type growthFinding struct {
	alive                      int
	hit, cold, pooled, release samples
	perSecond                  float64
	redis, heap                int64 // bytes: what Redis keeps for the place, and of this process (gateways, workers and bench)
}

// growth looks with few sandboxes alive first, then adds to them.
func (b *bench) growth(ctx context.Context) error {
	p, err := b.at(ctx, primedWay())
	if err != nil {
		return err
	}
	s := sets()[2] // redis alone
	visitor, err := p.caller(ctx, "visitor")
	if err != nil {
		return err
	}
	holders, err := p.callers(ctx, b.options.growth[len(b.options.growth)-1], s)
	if err != nil {
		return err
	}
	held := 0
	for _, n := range b.options.growth {
		err := together(ctx, holders[held:n], func(ctx context.Context, c *caller) error {
			_, err := c.request(ctx, "")
			return err
		})
		if err != nil {
			return err
		}
		held = n
		f, err := b.grown(ctx, visitor, holders[:n], s)
		if err != nil {
			return fmt.Errorf("with %d sandboxes alive: %w", n, err)
		}
		b.found.growth = append(b.found.growth, f)
	}
	return together(ctx, holders, func(ctx context.Context, c *caller) error {
		_, err := c.release(ctx)
		return err
	})
}

// grown measures beside the sandboxes that the holders have.
func (b *bench) grown(ctx context.Context, visitor *caller, holders []*caller, s set) (f growthFinding, err error) {
	f.alive = len(holders)
	for i := range b.hits {
		took, err := holders[i%len(holders)].request(ctx, "reused")
		if err != nil {
			return f, err
		}
		f.hit = append(f.hit, took)
	}
	if f.cold, f.release, err = visitor.visits(ctx, b.options.rounds, s, primedWay()); err != nil {
		return f, err
	}
	p, err := b.at(ctx, poolWay())
	if err != nil {
		return f, err
	}
	c, err := p.caller(ctx, fmt.Sprintf("beside%d", f.alive))
	if err != nil {
		return f, err
	}
	if f.pooled, _, err = c.visits(ctx, b.options.rounds, s, poolWay()); err != nil {
		return f, err
	}
	if f.redis, err = visitor.kept(ctx); err != nil {
		return f, err
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	f.heap = int64(m.HeapAlloc) //nolint:gosec // far below
	sim, err := b.simulated(ctx, 1, f.alive)
	f.perSecond = sim.perSecond()
	return f, err
}

// visits are sandboxes that come and go, one after another.
func (c *caller) visits(ctx context.Context, n int, s set, w way) (asked, released samples, err error) {
	for range n {
		if err := c.full(ctx, s); err != nil {
			return nil, nil, err
		}
		if err := c.begin(ctx, s); err != nil {
			return nil, nil, err
		}
		took, err := c.request(ctx, w.outcome())
		if err != nil {
			return nil, nil, err
		}
		asked = append(asked, took)
		if took, err = c.release(ctx); err != nil {
			return nil, nil, err
		}
		released = append(released, took)
	}
	return asked, released, c.full(ctx, s)
}

// kept is what the bus's Redis needs for the keys of the place, in bytes.
func (p *place) kept(ctx context.Context) (int64, error) {
	total := int64(0)
	keys := p.rdb.Scan(ctx, 0, "{"+p.cell+"}:*", 1000).Iterator()
	for keys.Next(ctx) {
		n, err := p.rdb.MemoryUsage(ctx, keys.Val(), 0).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return 0, fmt.Errorf("ask redis what it keeps: %w", err)
		}
		total += n
	}
	if err := keys.Err(); err != nil {
		return 0, fmt.Errorf("ask redis what it keeps: %w", err)
	}
	return total, nil
}
