package events

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
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

// inbox wakes the followers of one process.
type inbox struct {
	mu      sync.Mutex
	served  map[string]int                        // gateways whose notices are being read
	waiting map[string]map[chan struct{}]struct{} // by request ID
	// expected are bells of requests that nobody listens for yet.
	expected map[string]chan struct{}
}

// Expect says that a request of this gateway is about to be published for the first time, and followed from its start: the
// first Follow then waits for its notice before it looks, if RunInbox serves the gateway. forget is to be called when it is
// not followed after all; else it changes nothing.
func (b *Bus) Expect(gateway, requestID string) (forget func()) {
	if !b.inbox.serves(gateway) {
		return func() {}
	}
	return b.inbox.expect(requestID)
}

// expect makes the bell that the first to listen gets.
func (i *inbox) expect(requestID string) (forget func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.expected == nil {
		i.expected = map[string]chan struct{}{}
	}
	i.expected[requestID] = make(chan struct{}, 1)
	return func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		delete(i.expected, requestID)
	}
}

// listen gives a bell that rings when a request has something new, until stop is called; expected says that it would have
// rung since before the request was published.
func (i *inbox) listen(requestID string) (bell <-chan struct{}, expected bool, stop func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	c, expected := i.expected[requestID]
	if delete(i.expected, requestID); !expected {
		c = make(chan struct{}, 1)
	}
	if i.waiting == nil {
		i.waiting = map[string]map[chan struct{}]struct{}{}
	}
	if i.waiting[requestID] == nil {
		i.waiting[requestID] = map[chan struct{}]struct{}{}
	}
	i.waiting[requestID][c] = struct{}{}
	return c, expected, func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		if delete(i.waiting[requestID], c); len(i.waiting[requestID]) == 0 {
			delete(i.waiting, requestID)
		}
	}
}

// ring wakes who follows a request.
func (i *inbox) ring(requestID string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for c := range i.waiting[requestID] {
		rung(c)
	}
	if c, ok := i.expected[requestID]; ok {
		rung(c)
	}
}

// ringAll wakes everybody: notices may have been lost.
func (i *inbox) ringAll() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, bells := range i.waiting {
		for c := range bells {
			rung(c)
		}
	}
	for _, c := range i.expected {
		rung(c)
	}
}

func rung(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // it has been rung already
	}
}

// serve notes that a gateway's notices are read (n = 1) or no longer (-1).
func (i *inbox) serve(gateway string, n int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.served == nil {
		i.served = map[string]int{}
	}
	i.served[gateway] += n
}

func (i *inbox) serves(gateway string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return gateway != "" && i.served[gateway] > 0
}

// RunInbox reads the notices of one gateway for all its followers, until ctx ends: Follow then waits without a
// connection of its own. It outlives a Redis that is away or was flushed; it returns nil.
func (b *Bus) RunInbox(ctx context.Context, gateway string) error {
	b.inbox.serve(gateway, 1)
	defer b.inbox.serve(gateway, -1)
	key, last := b.inboxKey(gateway), ""
	for ctx.Err() == nil {
		if last == "" {
			var err error
			if last, err = b.newest(ctx, key); err != nil {
				wait(ctx, nil, block/4)
				continue
			}
		}
		found, err := b.blocking.XRead(context.WithoutCancel(ctx), &redis.XReadArgs{Streams: []string{key, last}, Count: 1000, Block: block}).Result()
		switch {
		case errors.Is(err, redis.Nil):
			// A stream that began anew may count from an earlier time than ours.
			if now, err := b.newest(ctx, key); err == nil && earlier(now, last) {
				last = "0-0"
				b.inbox.ringAll()
			}
		case err != nil:
			b.cfg.Log.Debug().Err(err).Str("gateway", gateway).Msg("cannot read notices; followers look for themselves")
			wait(ctx, nil, block/4)
			b.inbox.ringAll()
		default:
			for _, m := range found[0].Messages {
				last = m.ID
				b.inbox.ring(text(m, "rid"))
			}
		}
	}
	return nil
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
