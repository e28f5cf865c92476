package workertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/worker"
)

// hand is one worker in a process of its own, under a supervisor as a container's restart policy is one.
type hand struct {
	p     *Process
	end   context.CancelFunc // asks for a graceful end
	ended chan error         // how the last life of it ended
}

// spawn starts one more worker.
func (c *chaos) spawn() {
	c.mu.Lock()
	c.spawned++
	h := &hand{p: NewProcess(fmt.Sprintf("w%d", c.spawned)), ended: make(chan error, 1)}
	c.live = append(c.live, h)
	c.mu.Unlock()
	var ctx context.Context
	ctx, h.end = context.WithCancel(context.Background())
	go func() { h.ended <- c.supervise(ctx, h.p) }()
}

// supervise runs a worker until it is told to end, or killed. A worker that finds no container engine at its start ends with
// that error, and is started again.
func (c *chaos) supervise(ctx context.Context, p *Process) error {
	for life := 1; ; life++ {
		err := c.newWorker(p, life).Run(ctx)
		if err == nil || ctx.Err() != nil || p.life.Err() != nil || !errors.Is(err, engines.ErrUnavailable) {
			return err
		}
		c.facts.count("workers started again: no engine")
		if !wait(ctx, 50*time.Millisecond) {
			return nil
		}
	}
}

func (c *chaos) newWorker(p *Process, life int) *worker.Worker {
	name := fmt.Sprintf("%s.%d", p.Name, life)
	log := c.o.Log.With().Str("worker", name).Logger()
	calls, blocking, err := events.Open("redis://" + c.o.Redis.Addr())
	if err != nil {
		c.facts.bad("harness", "open the clients of %s: %v", name, err)
	}
	return worker.New(worker.Config{
		Bus:     events.New(p.Attach(calls), p.Attach(blocking), busConfig(log)),
		Store:   p.Store(c.store),
		Engines: Engines(p.Wire(c.sim)), Runtime: p.Runtime(c.sim),
		Roles: []string{"developer", "qa"}, Name: name, Cell: cell, Network: "sim", Enabled: true,
		Slots: 8, Grace: grace, JanitorInterval: 300 * time.Millisecond, StopGrace: time.Millisecond,
		Drain: 2 * time.Second, Beat: lease / 3, Pool: c.o.Pool, PoolTick: poolTick, GiveWay: 4 * poolTick, Log: log,
	})
}

// pickHand chooses a live worker.
func (c *chaos) pickHand() *hand {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Pick(c.dice, c.live)
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
			if err != nil && h.p.life.Err() == nil { // a killed one's error is nobody's
				c.facts.bad("R6", "worker %s ended with an error: %v", h.p.Name, err)
			}
		case <-limit:
			c.facts.bad("R6", "worker %s has not ended", h.p.Name)
			limit = time.After(time.Millisecond)
		}
		h.p.Close()
	}
}
