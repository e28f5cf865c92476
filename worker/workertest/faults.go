package workertest

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// faults lets one fault after another happen until the time is up.
func (c *chaos) faults(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Duration)
	defer cancel()
	for wait(ctx, c.dice.Between(20*time.Millisecond, 20*time.Millisecond+c.o.Gap)) {
		if c.o.Mode == Calm {
			continue
		}
		c.fault(ctx)
		if len(c.o.Pool) > 0 && c.dice.Once(4) {
			c.poolFault(ctx)
		}
	}
}

// fault lets one happen.
func (c *chaos) fault(ctx context.Context) {
	switch x := c.dice.Below(100); {
	case x < 30:
		c.sigkill()
	case x < 35:
		c.sigterm()
	case x < 60:
		c.facts.count("fault: worker stopped for a while")
		c.pickHand().p.Stop(c.dice.UpTo(3 * lease))
	case x < 66:
		c.facts.count("fault: connections killed")
		c.adm.ClientKillByFilter(ctx, "TYPE", "normal", "SKIPME", "yes")
	case x < 70:
		c.facts.count("fault: redis paused")
		c.adm.ClientPause(ctx, c.dice.Between(200*time.Millisecond, 1100*time.Millisecond))
	case x < 85:
		c.engineFault()
	case x < 94:
		if c.sim.KillOne(c.dice) {
			c.facts.count("fault: sandbox container died")
		}
	case x < 97:
		if c.o.Mode == Flush {
			c.flush(ctx)
		}
	default:
		c.killRedis(ctx)
	}
}

func (c *chaos) sigkill() {
	h := c.pickHand()
	h.p.Kill()
	h.end()
	c.bury(h)
	c.facts.count("fault: worker killed")
	c.spawn()
}

func (c *chaos) sigterm() {
	h := c.pickHand()
	h.end()
	c.bury(h)
	c.facts.count("fault: worker told to end")
	c.spawn()
}

// engineFault breaks the container engine for a while.
func (c *chaos) engineFault() {
	switch x := c.dice.Below(20); {
	case x < 4:
		c.facts.count("fault: engine paused")
		c.sim.SetPaused(true)
		c.after(c.dice.UpTo(1500*time.Millisecond), func() { c.sim.SetPaused(false) })
	case x < 8:
		c.facts.count("fault: engine down")
		c.sim.SetDown(true)
		c.after(c.dice.UpTo(500*time.Millisecond), func() { c.sim.SetDown(false) })
	case x < 10:
		c.facts.count("fault: event feeds broken")
		c.sim.BreakFeeds()
	default:
		op := Pick(c.dice, []string{OpCreate, OpStart, OpRename, OpInspect, OpList, OpRemove, OpQuery})
		c.facts.count("fault: engine slow")
		c.sim.SetSlow(op, c.dice.UpTo(800*time.Millisecond))
		c.after(c.dice.UpTo(1500*time.Millisecond), func() { c.sim.SetSlow(op, 0) })
	}
}

// after runs f later, at the latest before the run comes to rest.
func (c *chaos) after(d time.Duration, f func()) {
	c.timers.Go(func() {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-c.stop:
		}
		f()
	})
}

// flush empties Redis, and keeps the audit of before in the same transaction.
func (c *chaos) flush(ctx context.Context) bool {
	var got *redis.XMessageSliceCmd
	_, err := c.adm.TxPipelined(ctx, func(p redis.Pipeliner) error {
		got = p.XRange(ctx, AuditKey(cell), "-", "+")
		p.FlushAll(ctx)
		return nil
	})
	if err != nil {
		return false
	}
	c.facts.keepAudit(got.Val(), micros())
	c.facts.count("fault: FLUSHALL")
	return true
}

// killRedis ends Redis for a moment, and starts it with what its append-only file holds.
func (c *chaos) killRedis(ctx context.Context) {
	// A restart that was begun is brought to its end, whatever the schedule says.
	ctx = context.WithoutCancel(ctx)
	if err := c.o.Redis.Kill(ctx); err != nil {
		c.facts.bad("harness", "%v", err)
		return
	}
	wait(ctx, c.dice.UpTo(400*time.Millisecond))
	if err := c.o.Redis.Start(ctx); err != nil {
		c.facts.bad("harness", "%v", err)
		return
	}
	c.facts.count("fault: redis killed")
}
