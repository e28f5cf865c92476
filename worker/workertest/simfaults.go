package workertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/roboco/sandboxd/engines"
)

// errClosed: the simulation is over.
var errClosed = errors.New("the simulation is over")

// faults is what is wrong with the engine at the moment.
type faults struct {
	down    bool                     // every operation fails, before or after its effect
	paused  chan struct{}            // not nil: nothing happens until it is closed
	slow    map[string]time.Duration // operation -> how much later its effect or its answer comes
	errs    int                      // one operation in so many fails; 0 = none
	absent  int                      // one image in so many has to be pulled; 0 = none
	badPull int                      // one pull in so many fails; 0 = none

	underivable bool // no image can be derived
}

// SetDown makes every operation fail with ErrUnavailable, half of them after their effect, and breaks the feeds.
func (s *Sim) SetDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.faults.down = down; down {
		for f := range s.feeds {
			f.broken()
		}
	}
}

// SetPaused makes every operation and the feeds wait.
func (s *Sim) SetPaused(paused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case paused && s.faults.paused == nil:
		s.faults.paused = make(chan struct{})
	case !paused && s.faults.paused != nil:
		close(s.faults.paused)
		s.faults.paused = nil
	}
}

// SetSlow makes one kind of operation take so much longer, half of them before their effect; 0 ends it.
func (s *Sim) SetSlow(op string, by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.slow[op] = by
}

// SetOdds makes one operation in errs fail (half of them after their effect), one image in absent need a pull, and one
// pull in badPull fail; 0 means never.
func (s *Sim) SetOdds(errs, absent, badPull int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.errs, s.faults.absent, s.faults.badPull = errs, absent, badPull
}

// Calm ends every fault.
func (s *Sim) Calm() {
	s.SetDown(false)
	s.SetPaused(false)
	s.SetOdds(0, 0, 0)
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.faults.slow)
	s.faults.underivable = false
}

// plan is what will go wrong with one operation.
type plan struct {
	before, after         time.Duration
	failsFirst, failsLast bool
	carriesOn             bool // the effect comes even when nobody waits for the answer any more
}

func (s *Sim) plan(op string) plan {
	p := plan{before: s.dice.UpTo(s.cfg.Jitter), carriesOn: s.dice.Once(2)}
	s.mu.Lock()
	late, errs := s.faults.slow[op], s.faults.errs
	s.mu.Unlock()
	if late > 0 && s.dice.Once(2) {
		p.before += late
	} else {
		p.after = late
	}
	if s.dice.Once(errs) {
		p.failsFirst = s.dice.Once(2)
		p.failsLast = !p.failsFirst
	}
	return p
}

// answer is what an operation comes to.
type answer[T any] struct {
	value T
	err   error
}

// do performs one operation: effect runs under s.mu. The caller waits no longer than its ctx; the effect may come even so,
// as with a daemon whose client has hung up.
func do[T any](ctx context.Context, s *Sim, op string, effect func() (T, error)) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, unavailable(op, err)
	}
	if !s.enter() {
		return none, unavailable(op, errClosed)
	}
	p, done := s.plan(op), make(chan answer[T], 1)
	go func() {
		defer s.wg.Done()
		done <- perform(ctx, s, op, p, effect)
	}()
	select {
	case a := <-done:
		return a.value, a.err
	case <-ctx.Done():
		return none, unavailable(op, ctx.Err())
	}
}

func perform[T any](ctx context.Context, s *Sim, op string, p plan, effect func() (T, error)) answer[T] {
	if !s.sleep(p.before) || !s.awaitUnpaused() {
		return answer[T]{err: unavailable(op, errClosed)}
	}
	if ctx.Err() != nil && !p.carriesOn {
		return answer[T]{err: unavailable(op, ctx.Err())}
	}
	s.mu.Lock()
	if s.faults.down && !p.failsFirst && !p.failsLast {
		p.failsFirst = s.dice.Once(2)
		p.failsLast = !p.failsFirst
	}
	if p.failsFirst {
		s.mu.Unlock()
		return answer[T]{err: unavailable(op, errors.New("simulated, before the effect"))}
	}
	v, err := effect()
	s.mu.Unlock()
	s.sleep(p.after)
	if err == nil && p.failsLast {
		return answer[T]{err: unavailable(op, errors.New("simulated, after the effect"))}
	}
	return answer[T]{value: v, err: err}
}

// enter counts a caller in, unless the simulation is over.
func (s *Sim) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.closing:
		return false
	default:
		s.wg.Add(1)
		return true
	}
}

// sleep reports false when the simulation ended meanwhile.
func (s *Sim) sleep(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.closing:
		return false
	}
}

// awaitUnpaused reports false when the simulation ended meanwhile.
func (s *Sim) awaitUnpaused() bool {
	for {
		s.mu.Lock()
		paused := s.faults.paused
		s.mu.Unlock()
		if paused == nil {
			return true
		}
		select {
		case <-paused:
		case <-s.closing:
			return false
		}
	}
}

func unavailable(op string, cause error) error {
	return fmt.Errorf("%s: %w: %w", op, engines.ErrUnavailable, cause)
}
