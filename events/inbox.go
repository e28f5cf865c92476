package events

import (
	"context"
	"errors"
	"sync"

	"github.com/redis/go-redis/v9"
)

// inbox wakes the followers of one process.
type inbox struct {
	mu      sync.Mutex
	served  map[string]int                        // gateways whose notices are being read
	waiting map[string]map[chan struct{}]struct{} // by request ID
	// expected are requests that are followed from their start, until they are not followed any more.
	expected map[string]*expectation
}

// expectation is a request whose end is brought to its first follower, with the notice of it.
type expectation struct {
	bell     chan struct{}
	followed bool
	slug     string
	ended    []redis.XMessage // its reply stream up to the end; empty as long as it was not brought
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
		i.expected = map[string]*expectation{}
	}
	i.expected[requestID] = &expectation{bell: make(chan struct{}, 1)}
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
	c := make(chan struct{}, 1)
	e := i.expected[requestID]
	if expected = e != nil && !e.followed; expected {
		c, e.followed = e.bell, true
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
		if expected {
			delete(i.expected, requestID)
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
	if e := i.expected[requestID]; e != nil {
		rung(e.bell)
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
	for _, e := range i.expected {
		rung(e.bell)
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
			b.bring(ctx, found[0].Messages)
			for _, m := range found[0].Messages {
				last = m.ID
				b.inbox.ring(text(m, "rid"))
			}
		}
	}
	return nil
}

// bring reads the replies that these notices tell of, all at once, for those who wait for no more than the end. Who is brought
// nothing looks for itself.
func (b *Bus) bring(ctx context.Context, notices []redis.XMessage) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callLimit)
	defer cancel()
	pipe := b.calls.Pipeline()
	reads := map[string]*redis.XMessageSliceCmd{}
	slugs := map[string]string{}
	for _, m := range notices {
		if rid := text(m, "rid"); reads[rid] == nil && b.inbox.awaits(rid) {
			slugs[rid] = text(m, "slug")
			reads[rid] = pipe.XRange(ctx, b.ReplyStream(slugs[rid], rid), "-", "+")
		}
	}
	if len(reads) == 0 {
		return
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return
	}
	for rid, read := range reads {
		if found := read.Val(); ends(found) {
			b.inbox.keep(rid, slugs[rid], found)
		}
	}
}

// awaits says that somebody expects a request's end, and was brought nothing yet.
func (i *inbox) awaits(requestID string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	e := i.expected[requestID]
	return e != nil && e.ended == nil
}

// keep holds what was read of a request for whoever expects it.
func (i *inbox) keep(requestID, slug string, found []redis.XMessage) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if e := i.expected[requestID]; e != nil {
		e.slug, e.ended = slug, found
	}
}

// end is what was brought of an agent's request, if anything was.
func (i *inbox) end(slug, requestID string) []redis.XMessage {
	i.mu.Lock()
	defer i.mu.Unlock()
	if e := i.expected[requestID]; e != nil && e.slug == slug {
		return e.ended
	}
	return nil
}
