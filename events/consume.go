package events

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Handler works on one delivery. It must end it by Answer, Settle or Finish, or leave it to be delivered again.
// ctx ends when the consumer has drained for too long.
type Handler func(ctx context.Context, d Delivery)

// ConsumeOptions of Consume.
type ConsumeOptions struct {
	Name string // of the consumer; unique per process life
	// Slots are handlers at once, at least 1; a slot is taken before the stream is read. A handler that is going to take
	// long leaves its slot (Delivery.Leave), so that what is answered at once never waits behind it; it must bound by
	// itself how many do so.
	Slots int
	Drain time.Duration // handlers under way may go on this long after ctx ends; what is left is handed back
}

// consumer is one reader of the work stream.
type consumer struct {
	bus      *Bus
	name     string
	handle   Handler
	slots    chan struct{}
	handlers sync.WaitGroup
	working  context.Context //nolint:containedctx // the handlers' own life, which outlasts the reading
}

// Consume reads the work stream, new entries and those left idle by others, until ctx ends, then drains. It
// recreates the consumer group after a flush, and dead-letters what cannot be decoded. It returns nil after a drain.
func (b *Bus) Consume(ctx context.Context, o ConsumeOptions, h Handler) error {
	if o.Name == "" || o.Name == parked || o.Name == lined {
		return fmt.Errorf("consume as %q: a consumer needs a name of its own", o.Name)
	}
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	c := &consumer{bus: b, name: o.Name, handle: h, slots: make(chan struct{}, max(o.Slots, 1)), working: working}
	var loops sync.WaitGroup
	loops.Go(func() { c.readFresh(ctx) })
	loops.Go(func() { c.readIdle(ctx) })
	<-ctx.Done()
	c.drain(ctx, &loops, o.Drain, stop)
	return nil
}

// take waits for a free slot; it is false when ctx ends first.
func (c *consumer) take(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case c.slots <- struct{}{}:
	}
	if ctx.Err() != nil {
		c.release()
		return false
	}
	return true
}

// more takes up to n free slots, without waiting, and returns how many.
func (c *consumer) more(n int) (taken int) {
	for taken < n {
		select {
		case c.slots <- struct{}{}:
			taken++
		default:
			return taken
		}
	}
	return taken
}

func (c *consumer) release() { <-c.slots }

// batch is how many entries are read at once, at most, while there are always more.
const batch = 8

// readFresh reads what nobody has been given yet.
func (c *consumer) readFresh(ctx context.Context) {
	args := &redis.XReadGroupArgs{Group: group, Consumer: c.name, Streams: []string{c.bus.stream(), ">"}, Block: block}
	if cap(c.slots) == 1 {
		args.Block = c.bus.cfg.Park // the only slot is needed for what is parked, too
	}
	var trouble backoff
	for want := 1; c.take(ctx); {
		// Where a read brought all that it asked for there is more. Otherwise no slot is held for what may not come: others that
		// are free, for what is parked and for other workers, get it.
		slots := 1 + c.more(want-1)
		args.Count = int64(slots)
		// A read that was called off could still have been answered: it ends by itself, and what it brings is not lost.
		found, err := c.bus.blocking.XReadGroup(context.WithoutCancel(ctx), args).Result()
		var messages []redis.XMessage
		if err == nil && len(found) > 0 {
			messages = found[0].Messages
		}
		for range slots - len(messages) {
			c.release()
		}
		if len(messages) == 0 {
			want = 1
			c.mend(ctx, err, &trouble)
			continue
		}
		trouble.over()
		if want = min(2*len(messages), batch); len(messages) < slots {
			want = 1
		}
		with := together(messages)
		for _, m := range messages {
			c.start(ctx, m, with)
		}
	}
}

// start hands an entry to the handler, in a slot that has been taken for it.
func (c *consumer) start(ctx context.Context, m redis.XMessage, with *along) {
	if ctx.Err() != nil {
		c.release() // drain hands it back
		return
	}
	c.handlers.Go(func() {
		leave := sync.OnceFunc(c.release)
		defer leave()
		d := Delivery{Entry: m.ID, consumer: c.name}
		defer func() {
			if cause := recover(); cause != nil {
				c.stumbled(d, cause)
			}
		}()
		var err error
		d, err = deliver(m, c.name)
		if d.leave, d.along = leave, with; err == nil {
			c.handle(c.working, d)
			return
		}
		c.bus.cfg.Log.Warn().Str("entry", m.ID).Err(err).Msg("entry cannot be decoded: kept as a dead letter")
		settle, cancel := context.WithTimeout(context.WithoutCancel(ctx), callLimit)
		defer cancel()
		if _, err := c.bus.deadLetter(settle, d, CauseUndecodable, err.Error()); err != nil {
			c.bus.cfg.Log.Error().Str("entry", m.ID).Err(err).Msg("cannot keep a dead letter: it will be delivered again")
		}
	})
}

// mend waits out a failed read, and makes the consumer group anew where it is gone.
func (c *consumer) mend(ctx context.Context, err error, trouble *backoff) {
	if err == nil || errors.Is(err, redis.Nil) {
		trouble.over()
		return
	}
	if trouble.first() {
		c.bus.cfg.Log.Warn().Err(err).Str("consumer", c.name).Msg("cannot read the work stream; trying again")
	}
	if noGroup(err) {
		if err := c.bus.ensureGroup(ctx); err != nil {
			c.bus.cfg.Log.Warn().Err(err).Msg("cannot make the consumer group anew; trying again")
		}
	}
	wait(ctx, nil, trouble.next())
}

// backoff grows from 50 ms to 1 s.
type backoff struct{ last time.Duration }

func (b *backoff) first() bool { return b.last == 0 }
func (b *backoff) over()       { b.last = 0 }
func (b *backoff) next() time.Duration {
	b.last = min(max(2*b.last, 50*time.Millisecond), time.Second)
	return b.last
}
