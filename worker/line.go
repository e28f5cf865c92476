package worker

import (
	"context"
	"slices"
	"sync"
	"time"
)

// tellEvery is how often, at most, somebody in a line is told a new position.
const tellEvery = time.Second

// line hands out a bounded number of places. Who comes while none is free waits: by ticket, and under one ticket by rank. A
// run draws one ticket, and an agent has one run at a time; so an agent that has had its turn stands behind everybody else
// that waits, and none can push another back by asking more often.
type line struct {
	mu      sync.Mutex
	free    int
	waiting []*waiter // in the order of their turns
}

type waiter struct {
	ticket  uint64
	rank    int
	granted chan struct{} // closed with l.mu held
}

func newLine(places int) *line { return &line{free: places} }

// take waits for a place and returns how to give it back, which may be done again. told hears of the position (1 is the
// next) when there is a wait, and of every new one, from this goroutine. The error is ctx's cause.
func (l *line) take(ctx context.Context, ticket uint64, rank int, told func(position int)) (leave func(), err error) {
	w := l.join(ticket, rank)
	leave = sync.OnceFunc(l.leave)
	select {
	case <-w.granted:
		return leave, nil
	default:
	}
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	for last := 0; ; {
		if p := l.position(w); p > 0 && p != last {
			told(p)
			last = p
		}
		select {
		case <-w.granted:
			return leave, nil
		case <-ctx.Done():
			if !l.quit(w) {
				leave() // it was granted at the last moment
			}
			return nil, context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// join stands in line, and is granted a place at once where one is free.
func (l *line) join(ticket uint64, rank int) *waiter {
	w := &waiter{ticket: ticket, rank: rank, granted: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	at := len(l.waiting)
	for at > 0 && w.before(l.waiting[at-1]) {
		at--
	}
	l.waiting = slices.Insert(l.waiting, at, w)
	l.grant()
	return w
}

func (w *waiter) before(x *waiter) bool {
	return w.ticket < x.ticket || w.ticket == x.ticket && w.rank < x.rank
}

// grant gives free places to the first in line. l.mu is held.
func (l *line) grant() {
	for l.free > 0 && len(l.waiting) > 0 {
		close(l.waiting[0].granted)
		l.waiting = l.waiting[1:]
		l.free--
	}
}

// leave gives a place back.
func (l *line) leave() { l.widen(1) }

// widen adds places.
func (l *line) widen(places int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free += places
	l.grant()
}

// quit leaves the line; false when the place had been granted.
func (l *line) quit(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := slices.Index(l.waiting, w)
	if at < 0 {
		return false
	}
	l.waiting = slices.Delete(l.waiting, at, at+1)
	return true
}

// position counts the tickets up to and with this one's; 0 when it waits no longer.
func (l *line) position(w *waiter) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, last := 0, uint64(0)
	for _, x := range l.waiting {
		if x.ticket != last || n == 0 {
			n++
			last = x.ticket
		}
		if x == w {
			return n
		}
	}
	return 0
}

// length counts the tickets that wait.
func (l *line) length() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	tickets := map[uint64]struct{}{}
	for _, x := range l.waiting {
		tickets[x.ticket] = struct{}{}
	}
	return len(tickets)
}
