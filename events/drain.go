package events

import (
	"context"
	_ "embed"
	"sync"
	"time"
)

//go:embed handback.lua
var handbackLua string

//go:embed sweep.lua
var sweepLua string

const (
	// settleLimit is what a handler gets to come to an end once it has been called off.
	settleLimit = 5 * time.Second
	// readLimit is how long drain waits for the reading to stop: more than a blocked read lasts.
	readLimit = 3 * time.Second
)

// drain lets the handlers finish, calls them off when limit is over, and hands back what is still pending.
func (c *consumer) drain(ctx context.Context, loops *sync.WaitGroup, limit time.Duration, stop context.CancelFunc) {
	if !within(readLimit, loops.Wait) {
		c.bus.cfg.Log.Warn().Str("consumer", c.name).Msg("a read of the work stream does not end; what it brings is claimed by others later")
	}
	if !within(limit, c.handlers.Wait) {
		stop()
		if !within(settleLimit, c.handlers.Wait) {
			c.bus.cfg.Log.Warn().Str("consumer", c.name).Msg("handlers do not end; their entries are handed back all the same")
		}
	}
	settle, cancel := context.WithTimeout(context.WithoutCancel(ctx), callLimit)
	defer cancel()
	if err := c.bus.handBack(settle, c.name); err != nil {
		c.bus.cfg.Log.Warn().Err(err).Str("consumer", c.name).Msg("cannot hand entries back; others claim them later")
	}
}

// within waits for something to end, at most for limit.
func within(limit time.Duration, wait func()) bool {
	done := make(chan struct{})
	go func() {
		wait()
		close(done)
	}()
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}

// handBack makes all that is pending with a consumer claimable at once.
func (b *Bus) handBack(ctx context.Context, name string) error {
	args := struct {
		Consumer string `json:"consumer"`
	}{name}
	for {
		n, err := b.number(ctx, "hand back what "+name+" holds", b.scripts.handback, b.keys("", "", ""), args)
		if err != nil || n == 0 {
			return err
		}
	}
}

// SweepConsumers removes consumers of dead processes that hold nothing, and returns how many. One that reads is idle for a
// second or two; one that has been idle for three times Config.ClaimIdle is gone, and would only have to be made anew.
func (b *Bus) SweepConsumers(ctx context.Context) (int, error) {
	args := struct {
		Idle int64 `json:"idle"`
	}{3 * b.cfg.ClaimIdle.Milliseconds()}
	return b.number(ctx, "sweep consumers", b.scripts.sweep, b.keys("", "", ""), args)
}
