package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
)

// run is one provision under one lease: every engine of the set, side by side.
type run struct {
	*request
	seen  events.Tenancy
	born  string
	epoch string

	mu     sync.Mutex
	record map[string]events.Entry // what this run knows to be recorded, by engine
	made   map[string]string       // container ID -> engine: made by this run and not recorded
	kept   int64                   // bytes reserved for containers that are still to be made

	ticket   uint64        // the run's turn in every line
	patience time.Duration // of one wait in a line
	started  atomic.Bool   // a container of this run is being made, or was
	memory   func() error  // asks for the memory of the whole set, once
}

func newRun(r *request, b events.Begun) *run {
	return &run{
		request: r, seen: r.adm.seen.tenancy, born: b.Born, epoch: b.Epoch,
		record: maps.Clone(b.Record), made: map[string]string{},
		ticket: r.w.admission.tickets.Add(1), patience: max(r.w.cfg.QueueTimeout-b.Waited, tellEvery),
	}
}

// provision ensures the whole set under a beating lease, and settles. errFenced and *deadError send the request back
// to the guards; an error of the bus leaves the entry to be delivered again, with all that was made: the next delivery
// takes it over, or the janitor removes it.
func (r *run) provision(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := r.w.runs.add(r.slug, func() { cancel(errFenced) })
	defer stop()
	var beating together
	beating.Go(func() { r.beat(ctx, cancel) })

	r.memory = sync.OnceValue(func() error { return r.reserve(ctx) })
	failure, err := r.ensureAll(ctx, cancel)
	r.counted(math.MaxInt64)
	if err == nil || errors.Is(err, errFenced) || errors.Is(err, errDraining) {
		r.cleanUp(context.WithoutCancel(ctx))
	}
	cancel(nil)
	beating.Wait()
	switch {
	case errors.Is(err, errDraining):
		return r.giveUp()
	case err != nil:
		return err
	}
	f, err := r.settle(failure)
	switch {
	case err != nil:
		return err
	case f == events.Fenced || f == events.Lapsed:
		return errFenced
	}
	return nil
}

// giveUp hands a request that has waited in vain to the other workers.
func (r *run) giveUp() error {
	return r.w.settled(r.d, "give back", func(ctx context.Context) error {
		_, err := r.w.cfg.Bus.GiveUp(ctx, r.d, r.epoch) // fenced: it is another's already
		return err
	})
}

// beat extends the lease until ctx ends. A lease that another epoch holds ends the run; a bus that does not answer
// does not: whether the lease still stands is asked again at each record.
func (r *run) beat(ctx context.Context, cancel context.CancelCauseFunc) {
	t := time.NewTicker(r.w.cfg.Beat)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		f, err := r.w.cfg.Bus.Beat(ctx, r.d, r.epoch)
		if err == nil && f == events.Fenced {
			cancel(errFenced)
			return
		}
	}
}

// ensureAll brings every engine of the set to the record. The first failure of an engine that was asked for stops the
// others: whoever waits hears of it at once. It returns what to answer, or why the run cannot be settled.
func (r *run) ensureAll(ctx context.Context, cancel context.CancelCauseFunc) (*events.Refusal, error) {
	errs := make([]error, len(r.adm.set))
	var first atomic.Pointer[string] // the engine whose failure stopped the others
	var wg together
	for i, want := range r.adm.set {
		wg.Go(func() {
			whole := false
			defer func() {
				if !whole { // it panicked: the others are in vain
					cancel(errPanicked)
				}
			}()
			errs[i] = r.ensure(ctx, want)
			whole = true
			if errs[i] != nil && (!steers(errs[i]) && wanted(r.adm.asked, want.Engine) || errors.Is(errs[i], errDraining)) {
				first.CompareAndSwap(nil, &want.Engine)
				cancel(errs[i])
			}
		})
	}
	wg.Wait()
	return r.outcome(ctx, errs, first.Load())
}

// outcome is what to answer after these errors, one for each engine of the set; culprit is the engine, if any, whose failure
// stopped the others, which are not blamed for it.
func (r *run) outcome(ctx context.Context, errs []error, culprit *string) (failure *events.Refusal, _ error) {
	for i, err := range errs {
		if err == nil {
			continue
		}
		engine := r.adm.set[i].Engine
		cause := context.Cause(ctx)
		stopped := ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, cause))
		if stopped {
			err = cause // why this run was stopped, not that it was
		}
		if steers(err) {
			return nil, err
		}
		var full *fullError // that the place is full is every engine's own: the first of the set tells it
		if stopped && culprit != nil && *culprit != engine && !errors.As(cause, &full) {
			r.w.cfg.Log.Debug().Str("agent", r.slug).Str("engine", engine).Str("for", *culprit).Msg("engine was not finished: another one failed")
			continue
		}
		r.w.cfg.Log.Warn().Err(err).Str("agent", r.slug).Str("engine", engine).Msg("engine could not be provided")
		if failure == nil && wanted(r.adm.asked, engine) {
			failure = classify(fmt.Errorf("%s: %w", engine, err))
		}
	}
	return failure, nil
}

// steers tells errors that say what to do next from failures that are an answer.
func steers(err error) bool {
	var dead *deadError
	return errors.Is(err, errFenced) || errors.Is(err, errDraining) || errors.Is(err, events.ErrUnavailable) || errors.As(err, &dead) || errors.Is(err, context.Canceled)
}

// cleanUp removes what this run made and did not record. revoke decides: by now another run may have recorded it.
func (r *run) cleanUp(ctx context.Context) {
	r.mu.Lock()
	made := maps.Clone(r.made)
	r.mu.Unlock()
	var wg together
	for id, engine := range made {
		wg.Go(func() {
			if _, err := r.w.remove(ctx, id, r.epoch, reasonCleanup); err != nil {
				r.w.cfg.Log.Warn().Err(err).Str("container", id).Msg("clean-up left a container to the janitor")
				return
			}
			if old, ok := r.recorded(engine); ok { // a replacement that came no further than the renaming
				_ = r.w.cfg.Runtime.Rename(ctx, old.ID, old.Name) // best effort: the janitor does the same
			}
		})
	}
	wg.Wait()
}

func (r *run) recorded(engine string) (events.Entry, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.record[engine]
	return e, ok
}

// remember notes a recorded engine; it is no longer this run's to clean up.
func (r *run) remember(engine string, e events.Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record[engine] = e
	delete(r.made, e.ID)
}

func (r *run) own(id, engine string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made[id] = engine
}

// claimed says that this run holds a container of the engine that it has not recorded yet.
func (r *run) claimed(engine string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.made {
		if e == engine {
			return true
		}
	}
	return false
}

func (r *run) tell(ctx context.Context, p events.Progress) {
	if err := r.w.cfg.Bus.Tell(ctx, r.d, r.epoch, p); err != nil {
		r.w.cfg.Log.Debug().Err(err).Str("agent", r.slug).Msg("progress was not told")
	}
}

// put records one engine under the lease.
func (r *run) put(ctx context.Context, e engines.Engine, entry events.Entry, o events.Outcome, reason string) error {
	t := time.Now()
	f, err := r.w.cfg.Bus.Record(context.WithoutCancel(ctx), r.d, r.epoch, e.Name, entry, o, reason, r.adm.asked)
	r.log.phase("record", t)
	switch {
	case err != nil:
		return fmt.Errorf("record %s: %w", e.Name, err)
	case f == events.Fenced:
		return errFenced
	case f == events.Revoked:
		return errRevoked
	}
	r.remember(e.Name, entry)
	r.log.container(e.Name, entry, o, r.seen)
	return nil
}
