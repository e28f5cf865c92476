package worker

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/engines"
)

// looked is an engine with one container, whose looks can be held up.
type looked struct {
	mu    sync.Mutex
	n     int
	c     engines.Container
	err   error
	gates []chan struct{} // one for each look that is to wait, in turn
}

func (k *looked) inspect(ctx context.Context, _ string) (engines.Container, error) {
	k.mu.Lock()
	k.n++
	c, err := k.c, k.err // as it is at the beginning
	var gate chan struct{}
	if len(k.gates) > 0 {
		gate, k.gates = k.gates[0], k.gates[1:]
	}
	k.mu.Unlock()
	if gate == nil {
		return c, err
	}
	select {
	case <-gate:
		return c, err
	case <-ctx.Done():
		return engines.Container{}, ctx.Err()
	}
}

// set changes the container.
func (k *looked) set(change func(*looked)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change(k)
}

func (k *looked) looks() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.n
}

func newLooked() (*looked, *liveness) {
	k := &looked{c: engines.Container{ID: "c1", Name: "one", Running: true, StartedAt: "1"}}
	return k, newLiveness(k.inspect)
}

// asks looks in a goroutine of its own, and gives what it saw.
func asks(ctx context.Context, look func(context.Context, string) (engines.Container, error)) func() (string, error) {
	type saw struct {
		start string
		err   error
	}
	out := make(chan saw, 1)
	go func() {
		c, err := look(ctx, "c1")
		out <- saw{c.StartedAt, err}
	}()
	return func() (string, error) { s := <-out; return s.start, s.err }
}

// An answer serves again for a moment, while the feed stands and is silent about its container; otherwise never.
func TestAnswersServeAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k, l := newLooked()
		look := func(what string) int {
			before := k.looks()
			c, err := l.recent(t.Context(), what)
			require.NoError(t, err)
			require.Equal(t, "one", c.Name)
			return k.looks() - before
		}
		require.Equal(t, 1, look("c1"))
		require.Equal(t, 1, look("c1"), "the feed does not stand yet")
		l.stands()
		require.Equal(t, 1, look("c1"), "nothing of before it stood serves")
		require.Equal(t, 0, look("c1"))
		time.Sleep(reusable - time.Nanosecond)
		require.Equal(t, 0, look("c1"))
		time.Sleep(time.Nanosecond)
		require.Equal(t, 1, look("c1"), "its time is over")
		l.changed("another")
		require.Equal(t, 0, look("c1"))
		l.changed("c1")
		require.Equal(t, 1, look("c1"), "something happened to it")
		require.Equal(t, 1, look("one"), "what was looked up by name may be another by now")
		require.Equal(t, 1, look("one"))
		l.broke()
		require.Equal(t, 1, look("c1"), "the feed is broken")
		require.Equal(t, 1, look("c1"))
		l.stands()
		require.Equal(t, 1, look("c1"), "something may have gone unheard")
		before := k.looks()
		_, err := l.fresh(t.Context(), "c1")
		require.NoError(t, err)
		require.Equal(t, before+1, k.looks(), "who wants a look gets one")
		for range 100 { // what is over is not kept
			time.Sleep(reusable)
			look("c1")
		}
		l.answers["c2"] = answer{}
		time.Sleep(20 * reusable)
		look("c1")
		require.Len(t, l.answers, 1)
	})
}

// What is dead, paused or unknown is looked at each time.
func TestOnlyLifeServesAgain(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*looked){
		"dead":    func(k *looked) { k.c.Running = false },
		"paused":  func(k *looked) { k.c.Paused = true },
		"unknown": func(k *looked) { k.err = engines.ErrUnavailable },
		"gone":    func(k *looked) { k.err = engines.ErrNotFound },
	} {
		k, l := newLooked()
		l.stands()
		k.set(change)
		for range 3 {
			_, err := l.recent(t.Context(), "c1")
			require.ErrorIs(t, err, k.err, name)
		}
		require.Equal(t, 3, k.looks(), name)
	}
}

// What happens while a look is under way may not be in its answer.
func TestChangeDuringALook(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*liveness){
		"event": func(l *liveness) { l.changed("c1") },
		"broke": func(l *liveness) { l.broke(); l.stands() },
	} {
		synctest.Test(t, func(t *testing.T) {
			k, l := newLooked()
			l.stands()
			gate := make(chan struct{})
			k.gates = []chan struct{}{gate}
			first := asks(t.Context(), l.recent)
			synctest.Wait()
			change(l)
			k.set(func(k *looked) { k.c.StartedAt = "2" })
			close(gate)
			start, err := first()
			require.NoError(t, err)
			require.Equal(t, "1", start)
			c, err := l.recent(t.Context(), "c1")
			require.NoError(t, err)
			require.Equal(t, "2", c.StartedAt, name)
		})
	}
}

// Callers share a look that began after they asked, and none that began before.
func TestLooksAreSharedStrictly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k, l := newLooked()
		l.stands()
		one, two := make(chan struct{}), make(chan struct{})
		k.gates = []chan struct{}{one, two}
		first := asks(t.Context(), l.fresh)
		synctest.Wait()
		k.set(func(k *looked) { k.c.StartedAt = "2" }) // what was read before the calls below
		var later []func() (string, error)
		for range 50 {
			later = append(later, asks(t.Context(), l.fresh))
		}
		synctest.Wait()
		close(one)
		start, err := first()
		require.NoError(t, err)
		require.Equal(t, "1", start)
		synctest.Wait()
		k.set(func(k *looked) { k.c.StartedAt = "3" })
		last := asks(t.Context(), l.fresh)
		synctest.Wait()
		close(two)
		for _, f := range later {
			start, err := f()
			require.NoError(t, err)
			require.Equal(t, "2", start, "their look began after they asked, and is one")
		}
		start, err = last()
		require.NoError(t, err)
		require.Equal(t, "3", start)
		require.Equal(t, 3, k.looks())
	})
}

// A look that hangs holds nobody up for long, and its answer, when it comes, serves nobody else.
func TestALookThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k, l := newLooked()
		l.stands()
		gate := make(chan struct{})
		k.gates = []chan struct{}{gate}
		first := asks(t.Context(), l.fresh)
		synctest.Wait()
		k.set(func(k *looked) { k.c.StartedAt = "2" })
		began := time.Now()
		start, err := asks(t.Context(), l.recent)()
		require.NoError(t, err)
		require.Equal(t, "2", start)
		require.Equal(t, slowLook, time.Since(began))
		l.changed("c1")
		close(gate)
		_, err = first()
		require.NoError(t, err)
		require.Empty(t, l.answers)
		require.Empty(t, l.flights)
	})
}

// A caller that gives up takes nobody with it.
func TestALookIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k, l := newLooked()
		gate, never := make(chan struct{}), make(chan struct{})
		k.gates = []chan struct{}{gate, never}
		first := asks(t.Context(), l.fresh)
		synctest.Wait()
		mine, leave := context.WithCancel(t.Context())
		leader := asks(mine, l.fresh)
		synctest.Wait()
		close(gate)
		_, err := first()
		require.NoError(t, err)
		synctest.Wait() // the leader's look is under way, and does not end
		follower := asks(t.Context(), l.recent)
		impatient, end := context.WithCancelCause(t.Context())
		waiting := asks(impatient, l.recent)
		synctest.Wait()
		why := errors.New("enough")
		end(why)
		_, err = waiting()
		require.ErrorIs(t, err, why, "it waits no longer than it wants to")
		leave()
		_, err = leader()
		require.ErrorIs(t, err, context.Canceled)
		start, err := follower()
		require.NoError(t, err)
		require.Equal(t, "1", start)
	})
}

// A look that panics holds nobody up.
func TestALookThatPanics(t *testing.T) {
	t.Parallel()
	l := newLiveness(func(context.Context, string) (engines.Container, error) { panic("a bug") })
	for range 2 {
		require.Panics(t, func() { _, _ = l.fresh(t.Context(), "c1") })
	}
	require.Empty(t, l.flights)
}
