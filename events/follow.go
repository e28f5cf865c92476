package events

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// block is how long one blocking read waits: short, for a cancelled context does not interrupt it.
	block = time.Second
	// vanished is how long a follower bears with a request that is nowhere: its publication may be on its way again.
	vanished = 2 * time.Second
	// slowSweep is how soon a follower looks without having been told: a notice may be lost. It looks more and more seldom, up
	// to lastSweep: many may be waiting.
	slowSweep = time.Second
	lastSweep = 4 * time.Second
)

// Follow calls each with every entry of a reply stream after the given one ("" = from the start), progress first, the
// terminal one last, and returns after it; or ctx's error, or each's. A reply that has lapsed is ErrExpired, and so is a
// request that stays unknown for 2 s (Redis may have forgotten it: publish it again under its event ID). A Redis that does
// not answer is borne with for Config.Accept. While RunInbox serves the request's gateway, waiting costs no connection.
func (b *Bus) Follow(ctx context.Context, slug, requestID, after string, each func(Reply) error) error {
	bell, expected, stop := b.inbox.listen(requestID)
	defer stop()
	if expected && after == "" { // it was published a moment ago: whatever there is will ring, or has
		wait(ctx, bell, slowSweep)
		if over, err := b.brought(slug, requestID, each); over {
			return err
		}
	}
	var absent, down time.Time
	for sweep := slowSweep; ; sweep = min(2*sweep, lastSweep) {
		s, err := b.look(ctx, slug, requestID, after)
		if ctx.Err() != nil {
			return fmt.Errorf("follow request %s: %w", requestID, ctx.Err())
		}
		if b.impatient(err, s.lapsed, &absent, &down) {
			return err
		}
		if over, err := s.handOn(each); over || err != nil {
			return err
		}
		if n := len(s.replies); n > 0 {
			after = s.replies[n-1].ID
		}
		if err == nil && !b.inbox.serves(s.gateway) {
			b.waitBlocked(ctx, slug, requestID, after)
			continue
		}
		if err != nil || len(s.replies) > 0 {
			sweep = slowSweep
		}
		wait(ctx, bell, sweep)
	}
}

// brought calls each with what came along with the notice of a request's end, if that did.
func (b *Bus) brought(slug, requestID string, each func(Reply) error) (over bool, err error) {
	found := b.inbox.end(slug, requestID)
	if found == nil {
		return false, nil
	}
	replies, err := b.replies(slug, found)
	if err != nil {
		return true, fmt.Errorf("follow request %s: %w", requestID, err)
	}
	_, err = sight{replies: replies}.handOn(each)
	return true, err
}

// handOn calls each with every reply, up to the terminal one: then it is over.
func (s sight) handOn(each func(Reply) error) (over bool, err error) {
	for _, r := range s.replies {
		if err := each(r); err != nil {
			return false, err
		}
		if r.Terminal() {
			return true, nil
		}
	}
	return false, nil
}

// impatient says that a failed look ends the wait: what is absent, or down, since those times has been so for too long.
func (b *Bus) impatient(err error, lapsed bool, absent, down *time.Time) (over bool) {
	switch {
	case err == nil:
		*absent, *down = time.Time{}, time.Time{}
		return false
	case errors.Is(err, ErrExpired):
		return lapsed || lasts(absent, vanished)
	case errors.Is(err, ErrUnavailable):
		return lasts(down, b.cfg.Accept)
	}
	return true
}

// lasts notes when a state began, and says whether it has lasted.
func lasts(since *time.Time, limit time.Duration) bool {
	if since.IsZero() {
		*since = time.Now()
	}
	return time.Since(*since) >= limit
}

// wait returns when the bell rings, ctx ends, or about d has passed.
func wait(ctx context.Context, bell <-chan struct{}, d time.Duration) {
	t := time.NewTimer(jitter(d))
	defer t.Stop()
	select {
	case <-bell:
	case <-t.C:
	case <-ctx.Done():
	}
}

// jitter keeps many that wait for the same time from coming back at once: 3/4 d to 5/4 d.
func jitter(d time.Duration) time.Duration {
	return d*3/4 + rand.N(d/2+1) //nolint:gosec // spread, not secrecy
}

// waitBlocked waits for something new in a reply stream on a connection of its own.
func (b *Bus) waitBlocked(ctx context.Context, slug, requestID, after string) {
	if after == "" {
		after = "0-0"
	}
	err := b.blocking.XRead(ctx, &redis.XReadArgs{Streams: []string{b.ReplyStream(slug, requestID), after}, Count: 1, Block: block}).Err()
	if err != nil && !errors.Is(err, redis.Nil) {
		wait(ctx, nil, block/4)
	}
}

// newest is the last ID in a stream, 0-0 when it is empty.
func (b *Bus) newest(ctx context.Context, key string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	last, err := b.calls.XRevRangeN(ctx, key, "+", "-", 1).Result()
	if err != nil {
		return "", failed("find the end of "+key, err)
	}
	if len(last) == 0 {
		return "0-0", nil
	}
	return last[0].ID, nil
}
