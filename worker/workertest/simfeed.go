package workertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/roboco/sandboxd/engines"
)

// feed is one subscription to events. Its fields are guarded by the Sim's lock.
type feed struct {
	queue []engines.Event
	over  bool
	wake  chan struct{} // holds one token when there is something to see
}

func (f *feed) nudge() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *feed) broken() {
	f.over = true
	f.nudge()
}

// tell queues an event for every feed. s.mu is held.
func (s *Sim) tell(b *box, action engines.Action) {
	e := engines.Event{Action: action, ID: b.ID, Name: b.Name, Labels: maps.Clone(b.Labels), ExitCode: b.ExitCode, Time: time.Now()}
	for f := range s.feeds {
		f.queue = append(f.queue, e)
		f.nudge()
	}
}

// BreakFeeds ends every subscription with an error.
func (s *Sim) BreakFeeds() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f := range s.feeds {
		f.broken()
	}
}

// Events reports everything that happens to a container until ctx ends or the feed breaks.
func (s *Sim) Events(ctx context.Context, connected func(), found func(engines.Event)) error {
	f, err := do(ctx, s, OpOther, func() (*feed, error) {
		f := &feed{wake: make(chan struct{}, 1)}
		s.feeds[f] = struct{}{}
		return f, nil
	})
	if err != nil {
		return err
	}
	defer func() {
		s.mu.Lock()
		delete(s.feeds, f)
		s.mu.Unlock()
	}()
	connected()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.closing:
			return unavailable("events", errClosed)
		case <-f.wake:
		}
		if !s.awaitUnpaused() {
			return unavailable("events", errClosed)
		}
		s.mu.Lock()
		got, over := f.queue, f.over
		f.queue = nil
		s.mu.Unlock()
		for _, d := range got {
			found(d)
		}
		if over {
			return unavailable("events", errors.New("simulated: the feed broke"))
		}
	}
}

// WaitExit waits until a container runs no more.
func (s *Sim) WaitExit(ctx context.Context, id string) (int, error) {
	stopped, err := do(ctx, s, OpOther, func() (chan struct{}, error) {
		b := s.boxes[id]
		if b == nil {
			return nil, fmt.Errorf("wait for container %s: %w", id, engines.ErrNotFound)
		}
		if !b.Running {
			gone := make(chan struct{})
			close(gone)
			return gone, nil
		}
		return b.stopped, nil
	})
	if err != nil {
		return 0, err
	}
	select {
	case <-stopped:
	case <-ctx.Done():
		return 0, unavailable("wait", ctx.Err())
	case <-s.closing:
		return 0, unavailable("wait", errClosed)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.boxes[id]; b != nil {
		return b.ExitCode, nil
	}
	return 137, nil
}

// pull is one image on its way, shared by all who want it.
type pull struct {
	done chan struct{}
	err  error
}

// EnsureImage pulls an image now and then: SetOdds says how often.
func (s *Sim) EnsureImage(ctx context.Context, image string, progress func(engines.PullProgress)) error {
	if err := s.Ping(ctx); err != nil {
		return &engines.PullError{Image: image, Retryable: true, Cause: err}
	}
	p := s.joinPull(image)
	if p == nil {
		return nil
	}
	const total = 100 << 20
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for done := int64(0); ; done = min(done+total/10, total) {
		if progress != nil {
			progress(engines.PullProgress{Image: image, Done: done, Total: total})
		}
		select {
		case <-p.done:
			return p.err
		case <-tick.C:
		case <-ctx.Done():
			return &engines.PullError{Image: image, Retryable: true, Cause: unavailable(OpPull, ctx.Err())}
		}
	}
}

// joinPull gives the pull under way, begins one when the dice say that the image is absent, or gives nil.
func (s *Sim) joinPull(image string) *pull {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.pulls[image]; p != nil {
		return p
	}
	if !s.dice.Once(s.faults.absent) {
		return nil
	}
	select {
	case <-s.closing:
		return nil
	default:
	}
	p, takes, fails := &pull{done: make(chan struct{})}, s.dice.UpTo(s.cfg.PullTo), s.dice.Once(s.faults.badPull)
	s.pulls[image] = p
	s.wg.Go(func() {
		over := !s.sleep(takes)
		s.mu.Lock()
		defer s.mu.Unlock()
		if over || fails {
			p.err = &engines.PullError{Image: image, Retryable: true, Cause: errors.New("simulated: the registry does not answer")}
		}
		delete(s.pulls, image)
		close(p.done)
	})
	return p
}

// Networks lists the networks that were ensured.
func (s *Sim) Networks() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for n := range s.networks {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}
