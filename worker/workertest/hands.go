package workertest

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/worker"
)

// hand is one worker in a process of its own.
type hand struct {
	p     *Process
	w     *worker.Worker
	end   context.CancelFunc // asks for a graceful end
	ended chan error         // Run's answer
}

// spawn starts one more worker.
func (c *chaos) spawn() {
	c.mu.Lock()
	c.spawned++
	name := fmt.Sprintf("w%d", c.spawned)
	c.mu.Unlock()
	p := NewProcess(name)
	opt := redis.Options{Addr: c.o.Redis.Addr(), PoolSize: 40, ReadTimeout: 2 * time.Second}
	log := c.o.Log.With().Str("worker", name).Logger()
	h := &hand{p: p, ended: make(chan error, 1), w: worker.New(worker.Config{
		Bus:     events.New(p.Client(opt), p.Client(opt), busConfig(log)),
		Store:   p.Store(c.store),
		Engines: Engines(p.Wire(c.sim)), Runtime: p.Runtime(c.sim),
		Roles: []string{"developer", "qa"}, Name: name, Cell: cell, Network: "sim", Enabled: true,
		Slots: 8, Grace: grace, JanitorInterval: 300 * time.Millisecond, StopGrace: time.Millisecond,
		Drain: 2 * time.Second, Beat: lease / 3, Log: log,
	})}
	var ctx context.Context
	ctx, h.end = context.WithCancel(context.Background())
	go func() { h.ended <- h.w.Run(ctx) }()
	c.mu.Lock()
	c.live = append(c.live, h)
	c.mu.Unlock()
}

// pickHand chooses a live worker.
func (c *chaos) pickHand() *hand {
	c.mu.Lock()
	defer c.mu.Unlock()
	return pick(c.dice, c.live)
}

// bury takes a worker off the list of those that live.
func (c *chaos) bury(h *hand) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.live {
		if c.live[i] == h {
			c.live = append(c.live[:i], c.live[i+1:]...)
			break
		}
	}
	c.buried = append(c.buried, h)
}

// shutdown ends every worker gracefully and waits for all of them, also those that were killed. It may be called again.
func (c *chaos) shutdown() {
	c.mu.Lock()
	all := append(append([]*hand{}, c.live...), c.buried...)
	c.live, c.buried = nil, nil
	c.mu.Unlock()
	for _, h := range all {
		h.end()
	}
	limit := time.After(30 * time.Second)
	for _, h := range all {
		select {
		case err := <-h.ended:
			select {
			case <-h.p.Killed(): // its error is nobody's
			default:
				if err != nil {
					c.facts.bad("R6", "worker %s ended with an error: %v", h.p.Name, err)
				}
			}
		case <-limit:
			c.facts.bad("R6", "worker %s has not ended", h.p.Name)
			limit = time.After(time.Millisecond)
		}
		h.p.Close()
	}
}
