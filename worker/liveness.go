package worker

import (
	"context"
	"sync"
	"time"

	"github.com/roboco/sandboxd/engines"
)

// reusable is how long an answer about a container may serve again, while the engine's event feed stands and is silent about
// that container.
const reusable = 100 * time.Millisecond

// slowLook is how long a caller waits for a look of before it to end, so that it can share the next one; then it looks beside it.
const slowLook = 50 * time.Millisecond

// liveness looks at containers for all requests of this worker, no more often than it has to.
type liveness struct {
	inspect func(ctx context.Context, idOrName string) (engines.Container, error)

	mu      sync.Mutex
	feed    bool               // it stands: whatever happens to a container is heard of
	clock   uint64             // counts calls and flights, in their order
	flights map[string]*flight // looks under way, by what is looked at
	answers map[string]answer  // by container ID, while the feed stands
	swept   time.Time
}

// flight is one look at the engine that several callers may share.
type flight struct {
	began     uint64
	stale     bool          // something may have happened to the container since it began
	abandoned bool          // its caller has gone: its error says nothing of the container
	done      chan struct{} // closed when what follows is final
	c         engines.Container
	err       error
}

// answer is what a look said.
type answer struct {
	c     engines.Container
	began time.Time // when it was asked
}

func newLiveness(inspect func(context.Context, string) (engines.Container, error)) *liveness {
	return &liveness{inspect: inspect, flights: map[string]*flight{}, answers: map[string]answer{}}
}

// stands says that the feed tells from now on whatever happens. What was looked at before is worth nothing: it may have
// missed something in between.
func (l *liveness) stands() { l.reset(true) }

// broke says that the feed tells nothing any more.
func (l *liveness) broke() { l.reset(false) }

func (l *liveness) reset(feed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.feed = feed
	clear(l.answers)
	for _, f := range l.flights {
		f.stale = true
	}
}

// changed says that something happened to a container.
func (l *liveness) changed(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.answers, id)
	if f := l.flights[id]; f != nil {
		f.stale = true
	}
}

// recent gives the container of this ID as it is, or was within the last moment, as far as the feed has told.
func (l *liveness) recent(ctx context.Context, id string) (engines.Container, error) {
	return l.look(ctx, id, true)
}

// fresh gives a container, by full ID or name, as a look found it that began after this call.
func (l *liveness) fresh(ctx context.Context, idOrName string) (engines.Container, error) {
	return l.look(ctx, idOrName, false)
}

// look shares only flights that begin after its call: who has read something first may rely on having looked afterwards.
func (l *liveness) look(ctx context.Context, what string, reuse bool) (engines.Container, error) {
	l.mu.Lock()
	l.clock++
	asked := l.clock
	for {
		if a, ok := l.answers[what]; ok && reuse && time.Since(a.began) < reusable {
			l.mu.Unlock()
			return a.c, nil
		}
		f := l.flights[what]
		if f == nil {
			return l.fly(ctx, what)
		}
		l.mu.Unlock()
		slow, err := f.wait(ctx, f.began < asked)
		if err != nil {
			return engines.Container{}, err
		}
		if !slow && f.began > asked && !f.abandoned {
			return f.c, f.err
		}
		l.mu.Lock()
		if slow && l.flights[what] == f {
			return l.fly(ctx, what)
		}
	}
}

// wait returns when the look is over; with a limit also when it is slow. The error is ctx's cause.
func (f *flight) wait(ctx context.Context, limited bool) (slow bool, err error) {
	var over <-chan time.Time
	if limited {
		t := time.NewTimer(slowLook)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-f.done:
		return false, nil
	case <-over:
		return true, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// fly looks at the engine, for this caller and all that come to share it. l.mu is held, and is not afterwards.
func (l *liveness) fly(ctx context.Context, what string) (engines.Container, error) {
	l.clock++
	f := &flight{began: l.clock, abandoned: true, done: make(chan struct{})}
	if slow := l.flights[what]; slow != nil {
		slow.stale = true // nobody tells it any more what happens
	}
	l.flights[what] = f
	l.mu.Unlock()
	began := time.Now()
	defer func() { // also of a look that panics
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.flights[what] == f {
			delete(l.flights, what)
		}
		// What is found dead is not told twice: whoever acts on that has looked for itself.
		if lives := f.err == nil && f.c.ID == what && f.c.Running && !f.c.Paused; lives && !f.stale && l.feed {
			l.answers[what] = answer{c: f.c, began: began}
			l.sweep(began)
		}
		close(f.done)
	}()
	f.c, f.err = l.inspect(ctx, what)
	f.abandoned = f.err != nil && ctx.Err() != nil
	return f.c, f.err
}

// sweep forgets what can serve nobody any more, now and then. l.mu is held.
func (l *liveness) sweep(now time.Time) {
	if now.Sub(l.swept) < 10*reusable {
		return
	}
	l.swept = now
	for id, a := range l.answers {
		if now.Sub(a.began) >= reusable {
			delete(l.answers, id)
		}
	}
}
