package verbs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/roboco/sandboxd/events"
)

// How a follower ends without a terminal reply.
var (
	// errNotAccepted: the time to accept has passed, and one more read past it found nothing.
	errNotAccepted = errors.New("no worker took the request in time")
	// errForgotten: the reply has lapsed, or Redis has lost the request and its event is not known here.
	errForgotten = errors.New("the reply is not kept any more")
	// errSilent ends one stretch of listening.
	errSilent = errors.New("nothing new")
)

// follower waits for the end of one request. After a silence it makes sure that the request still stands: Redis may be
// away, or may have come back without it.
type follower struct {
	bus    *events.Bus
	accept time.Duration
	slug   string
	id     string
	event  *events.Event // to publish again where Redis forgot it; nil where it is not known
	last   string        // the last entry seen
	each   func(events.Reply) error

	heard    bool // something came: a worker has the request
	told     error
	terminal *events.Reply
}

// run gives the terminal reply; or each's error, ctx's, errNotAccepted, or that of a Redis that stays away.
func (f *follower) run(ctx context.Context) (events.Reply, error) {
	deadline := time.Now().Add(f.accept)
	var away time.Time
	for {
		err := f.listen(ctx, f.patience(deadline))
		if f.terminal == nil && f.told == nil && ctx.Err() == nil {
			err = f.check(ctx, &deadline)
		}
		switch {
		case f.terminal != nil:
			return *f.terminal, nil
		case f.told != nil:
			return events.Reply{}, f.told
		case ctx.Err() != nil:
			return events.Reply{}, fmt.Errorf("wait for request %s: %w", f.id, context.Cause(ctx))
		case err == nil:
			away = time.Time{}
			continue
		case errors.Is(err, errNotAccepted), errors.Is(err, errForgotten), errors.Is(err, events.ErrFull):
			return events.Reply{}, err
		}
		if away.IsZero() {
			away = time.Now()
		}
		if time.Since(away) >= f.accept || (!f.heard && time.Now().After(deadline)) {
			return events.Reply{}, err
		}
		wait(ctx, min(f.accept/10, 200*time.Millisecond))
	}
}

// patience is how long silence is taken as it is.
func (f *follower) patience(deadline time.Time) time.Duration {
	if f.heard {
		return f.accept
	}
	return max(time.Until(deadline), time.Millisecond)
}

// listen follows the reply stream until its end or a silence.
func (f *follower) listen(ctx context.Context, silence time.Duration) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer timer.Stop()
	err := f.bus.Follow(ctx, f.slug, f.id, f.last, func(r events.Reply) error {
		timer.Reset(f.accept)
		return f.take(r)
	})
	if err != nil {
		return fmt.Errorf("follow request %s: %w", f.id, err)
	}
	return nil
}

// take notes one entry and hands it on.
func (f *follower) take(r events.Reply) error {
	f.heard = true
	f.last = r.ID
	if r.Terminal() {
		f.terminal = &r
		return nil
	}
	f.told = f.each(r)
	return f.told
}

// check reads once more, and where a worker has the request, makes sure that Redis still knows of it.
func (f *follower) check(ctx context.Context, deadline *time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, f.accept)
	defer cancel()
	past := !time.Now().Before(*deadline) // looked at before the read: the read is past the deadline too
	replies, err := f.bus.Replies(ctx, f.slug, f.id, f.last)
	forgotten := errors.Is(err, events.ErrExpired)
	if err != nil && !forgotten {
		return fmt.Errorf("read the replies to request %s: %w", f.id, err)
	}
	for _, r := range replies {
		if err := f.take(r); err != nil || r.Terminal() {
			return err
		}
	}
	if forgotten {
		return f.again(ctx, deadline)
	}
	if len(replies) == 0 && !f.heard && past {
		return errNotAccepted
	}
	return nil
}

// again publishes a request that Redis has lost. One that is remembered as published was answered long ago.
func (f *follower) again(ctx context.Context, deadline *time.Time) error {
	if f.event == nil {
		return errForgotten
	}
	pub, err := f.bus.Publish(ctx, *f.event)
	if err != nil {
		return fmt.Errorf("publish request %s again: %w", f.id, err)
	}
	if pub.Known {
		return errForgotten
	}
	f.last, f.heard = "", false
	*deadline = time.Now().Add(f.accept)
	return nil
}
