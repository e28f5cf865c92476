package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
)

// rounds bounds how often one delivery goes back to the guards; a later delivery goes on from there.
const rounds = 20

// Errors that steer a request; they never reach an answer by themselves.
var (
	errFenced    = errors.New("another epoch holds the lease")
	errRevoked   = errors.New("the container may not be recorded any more")
	errNotReady  = errors.New("not ready in time")
	errUnsettled = errors.New("the container's name did not come free")
	errPanicked  = errors.New("another engine's provision panicked")
)

// strangerError says that a name of ours is taken by a container that is not ours.
type strangerError struct{ name string }

func (e *strangerError) Error() string {
	return fmt.Sprintf("the name %s is taken by a container that does not belong to this sandboxd", e.name)
}

// imageError says that the image of an engine could not be had.
type imageError struct {
	engine engines.Engine
	image  string
	cause  error
}

func (e *imageError) Error() string { return "image of " + e.engine.Name + ": " + e.cause.Error() }

func (e *imageError) Unwrap() error { return e.cause }

// setting is the variable that names the image.
func (e *imageError) setting() string {
	bare, feature := e.engine.ImageSettings()
	if e.image == e.engine.Feature && feature != "" {
		return feature
	}
	return bare
}

// deadError says that recorded containers turned out to be dead in the middle of a run.
type deadError struct{ id string }

func (e *deadError) Error() string { return "container " + e.id + " is dead" }

// request is one sandbox.requested in the hands of this worker.
type request struct {
	w    *Worker
	d    events.Delivery
	q    events.Requested
	slug string

	adm   admitted
	epoch string   // held by this request's run, or empty
	gone  []string // container IDs found dead
	moved []string // container IDs found alive under another name
	died  map[string]bool
	log   *journal

	entered bool // its run is counted among those in the worker's hands
}

// handleRequest answers a request, or leaves it to be delivered again when the bus fails.
func (w *Worker) handleRequest(ctx context.Context, d events.Delivery) {
	var q events.Requested
	if err := json.Unmarshal(d.Event.Data, &q); err != nil || q.RequestID == "" {
		_ = w.settled(d, "dead-letter", func(ctx context.Context) error {
			_, err := w.cfg.Bus.DeadLetter(ctx, d, "the data of sandbox.requested cannot be read")
			return err
		})
		return
	}
	r := &request{w: w, d: d, q: q, slug: d.Event.Subject, died: map[string]bool{}, log: w.journal(d, q)}
	defer r.exit()
	for range rounds {
		again, err := r.round(ctx)
		if err != nil {
			w.cfg.Log.Warn().Err(err).Str("agent", r.slug).Str("request", q.RequestID).Msg("request left for another delivery")
			return
		}
		if !again {
			return
		}
	}
	w.cfg.Log.Warn().Str("agent", r.slug).Str("request", q.RequestID).Msg("request keeps changing under its worker; left for another delivery")
}

// round goes once from the guards to an answer. It says whether to go back to the guards.
func (r *request) round(ctx context.Context) (again bool, err error) {
	t := time.Now()
	adm, refusal, err := r.w.guard(ctx, r.d, r.q)
	r.log.phase("guards", t)
	if err != nil {
		return false, err
	}
	if refusal != nil {
		return false, r.refuse(refusal, adm.seen.tenancy)
	}
	r.adm = adm
	if adm.seen.owedOwned {
		r.w.markOwned(ctx, r.slug, adm.seen.tenancy)
	}
	if answered, err := r.glance(ctx); answered || err != nil {
		return false, err
	}
	begun, err := r.w.cfg.Bus.Begin(ctx, r.d, events.BeginArgs{
		Asked: adm.asked, Set: adm.set, Seen: adm.seen.tenancy, HashOwner: adm.seen.hashOwner,
		Epoch: r.epoch, Gone: r.gone, Moved: r.moved,
		NoRoom: !r.entered && r.w.crowded(), Ahead: r.w.admission.ahead(),
	})
	if err != nil {
		return false, fmt.Errorf("begin: %w", err)
	}
	if begun.Verdict == events.Run {
		r.epoch = begun.Epoch
	}
	if begun.Sealed != nil { // nothing is touched: its owner may have the key where this worker has not
		return false, r.refuse(classify(begun.Sealed), adm.seen.tenancy)
	}
	switch begun.Verdict {
	case events.Hit:
		return r.hit(ctx, begun)
	case events.Full:
		return false, r.refuse(classify(r.w.fullOfSandboxes(begun.Live)), adm.seen.tenancy)
	case events.Waited:
		return false, r.refuse(classify(r.w.fullOfRuns(begun.Waited)), adm.seen.tenancy)
	case events.Run:
		r.enter()
		return r.run(ctx, begun)
	case events.Again:
		return true, nil
	case events.Done:
		r.log.done(string(begun.State), nil, adm.seen.tenancy)
	default: // LOST and BUSY: it is no longer ours to answer
	}
	return false, nil
}

// glance answers at once with the record that the guards have read, where it has all that is asked, alive. Whatever is not so
// plain is left to begin.
func (r *request) glance(ctx context.Context) (answered bool, err error) {
	seen := r.adm.seen
	if r.epoch != "" || len(r.gone) > 0 || seen.hashOwner != seen.tenancy.Owner {
		return false, nil
	}
	asked := map[string]events.Entry{}
	for _, want := range r.adm.asked {
		e, ok := r.adm.stood.Record[want.Engine]
		if !ok || !covers(e.Features, want.Features) {
			return false, nil
		}
		asked[want.Engine] = e
	}
	gone, moved, err := check(ctx, asked, r.w.lives.recent)
	if err != nil || len(gone) > 0 || len(moved) > 0 {
		return false, nil //nolint:nilerr // who begins looks again, and says what comes of it
	}
	return r.reused(asked, func(checked map[string]string) (events.Verdict, error) {
		return r.w.cfg.Bus.AnswerGlance(ctx, r.d, events.Glance{Asked: r.adm.asked, Seen: seen.tenancy, At: r.adm.stood.At, Checked: checked})
	})
}

// reused answers with what was asked and found alive. It is false when that is not so any more.
func (r *request) reused(asked map[string]events.Entry, answer func(checked map[string]string) (events.Verdict, error)) (answered bool, err error) {
	checked := map[string]string{}
	for engine, entry := range asked {
		checked[engine] = entry.ID
	}
	v, err := answer(checked)
	if err != nil {
		return false, fmt.Errorf("answer: %w", err)
	}
	if v == events.Done {
		for engine, entry := range asked {
			r.log.container(engine, entry, events.Reused, r.adm.seen.tenancy)
		}
		r.log.done(string(events.StateOK), nil, r.adm.seen.tenancy)
	}
	return v != events.Again, nil
}

// hit checks the recorded containers of what is asked, and answers with them.
func (r *request) hit(ctx context.Context, begun events.Begun) (again bool, err error) {
	asked := map[string]events.Entry{}
	for _, want := range r.adm.asked {
		asked[want.Engine] = begun.Record[want.Engine]
	}
	gone, moved, err := check(ctx, asked, r.w.lives.recent)
	if err != nil {
		return false, r.refuse(r.w.unmet(err), r.adm.seen.tenancy)
	}
	if len(gone) > 0 || len(moved) > 0 {
		r.note(asked, gone, moved)
		return true, nil
	}
	answered, err := r.reused(asked, func(checked map[string]string) (events.Verdict, error) {
		return r.w.cfg.Bus.AnswerHit(ctx, r.d, r.adm.asked, checked)
	})
	return !answered && err == nil, err
}

// run provisions under the lease. Whatever made it stop short is told apart here: back to the guards, or leave it.
func (r *request) run(ctx context.Context, begun events.Begun) (again bool, err error) {
	gone, moved, err := check(ctx, begun.Record, r.w.lives.fresh)
	if err != nil {
		f, serr := r.settle(r.w.unmet(err))
		return f == events.Fenced || f == events.Lapsed, serr
	}
	if len(gone) > 0 {
		r.note(begun.Record, gone, moved)
		return true, nil
	}
	run := newRun(r, begun)
	err = run.provision(ctx)
	var dead *deadError
	switch {
	case err == nil:
		return false, nil
	case errors.Is(err, errFenced):
		r.epoch, r.moved = "", nil
		return true, nil
	case errors.As(err, &dead):
		r.gone = append(r.gone, dead.id)
		return true, nil
	}
	return false, err
}

// note keeps what a check found, for the next begin.
func (r *request) note(record map[string]events.Entry, gone, moved []string) {
	r.gone, r.moved = union(r.gone, gone), moved
	for engine, entry := range record {
		for _, id := range gone {
			if entry.ID == id {
				r.died[engine] = true
			}
		}
	}
}

// refuse answers with a refusal. Where a lease is held, it is released with it; where it was lost, the answer stands all the same.
func (r *request) refuse(refusal *events.Refusal, t events.Tenancy) error {
	if r.epoch != "" {
		if f, err := r.settle(refusal); err != nil || f == events.Held {
			return err
		}
	}
	st := events.StateRefused
	if refusal.Guard == 8 {
		st = events.StateFailed
	}
	return r.w.settled(r.d, "refuse", func(ctx context.Context) error {
		mine, err := r.w.cfg.Bus.Refuse(ctx, r.d, st, *refusal, t.Task)
		if err == nil && mine {
			r.log.done(string(st), refusal, t)
		}
		return err
	})
}

// settle ends the run that this request holds.
func (r *request) settle(failure *events.Refusal) (f events.Fencing, err error) {
	err = r.w.settled(r.d, "settle", func(ctx context.Context) error {
		f, err = r.w.cfg.Bus.Settle(ctx, r.d, r.epoch, failure, r.adm.asked)
		return err
	})
	if err != nil {
		return f, err
	}
	if f == events.Held {
		st := events.StateOK
		if failure != nil {
			st = events.StateFailed
		}
		r.log.done(string(st), failure, r.adm.seen.tenancy)
	}
	r.epoch = ""
	return f, nil
}

// check compares recorded containers with the engine, as look shows them: gone ones are dead, paused (they answer nobody) or
// began anew (a restart empties a tmpfs), moved ones live under another name. An error means unknown.
func check(ctx context.Context, record map[string]events.Entry, look func(context.Context, string) (engines.Container, error)) (gone, moved []string, err error) {
	type verdict struct{ gone, moved bool }
	entries := make([]events.Entry, 0, len(record))
	for _, e := range record {
		entries = append(entries, e)
	}
	verdicts := make([]verdict, len(entries))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var looks together
	for i, e := range entries {
		looks.Go(func() {
			c, err := look(ctx, e.ID)
			switch {
			case errors.Is(err, engines.ErrNotFound):
				verdicts[i].gone = true
			case err != nil:
				cancel(fmt.Errorf("inspect %s: %w", e.Name, err)) // the first one counts
			default:
				verdicts[i].gone = !c.Running || c.Paused || c.StartedAt != e.Start
				verdicts[i].moved = c.Name != e.Name
			}
		})
	}
	looks.Wait()
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	for i, v := range verdicts {
		switch {
		case v.gone:
			gone = append(gone, entries[i].ID)
		case v.moved:
			moved = append(moved, entries[i].ID)
		}
	}
	return gone, moved, nil
}
