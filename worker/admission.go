package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roboco/sandboxd/events"
)

// errDraining: this worker is about to end, and a run that still waits for its turn is another worker's.
var errDraining = errors.New("the worker is about to end")

// What a request may be refused for; a label of the metric.
const (
	limitSandboxes = "sandboxes"
	limitMemory    = "memory"
	limitCreates   = "creates"
	limitPulls     = "pulls"
	limitRoom      = "room"
)

// fullError says that the place is full: which limit was met, and what to do about it.
type fullError struct{ limit, message, remediate string }

func (e *fullError) Error() string { return e.message }

// admission is what stands between the runs of this worker and the container engine.
type admission struct {
	runs    atomic.Int64  // in the worker's hands: at work, or in a line
	tickets atomic.Uint64 // the last one drawn
	creates *line         // containers that are being made
	desk    *line         // one place: whoever has it asks whether the host has memory for its set
	freed   chan struct{} // memory may have come free: whoever is at the desk asks again

	mu       sync.Mutex
	reserved int64 // bytes of containers that may be made and that the engine does not count yet
	returned int64 // bytes given back so far: never less than before
}

func newAdmission(creates int) *admission {
	return &admission{creates: newLine(creates), desk: newLine(1), freed: make(chan struct{}, 1)}
}

// ahead is how many runs wait here.
func (a *admission) ahead() int { return a.creates.length() + a.desk.length() }

// giveBack takes from what is spoken for.
func (a *admission) giveBack(bytes int64) {
	a.mu.Lock()
	a.reserved -= bytes
	a.returned += bytes
	a.mu.Unlock()
	a.ask()
}

// ask wakes whoever is at the desk.
func (a *admission) ask() {
	select {
	case a.freed <- struct{}{}:
	default: // it is woken already
	}
}

// look begins a look at what the engine counts. What is given back before the look is over is spoken for all the same: the
// engine may have counted before that container was there.
func (a *admission) look() (begun int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.returned
}

// moved says that something was given back since the look began: another one may find more.
func (a *admission) moved(begun int64) bool { return a.look() != begun }

// tryReserve reserves memory if that is enough: free is what is left of total by a look that found so much committed, and
// spoken all that is not free.
func (a *admission) tryReserve(begun, need, total, committed int64, enough func(free, spoken int64) bool) (free int64, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	spoken := committed + a.reserved + a.returned - begun
	free = max(total-spoken, 0)
	if !enough(free, spoken) {
		return free, false
	}
	a.reserved += need
	return free, true
}

// enter counts the request's run among those in the worker's hands, once, and leaves the slot in which it was read.
func (r *request) enter() {
	if !r.entered {
		r.entered = true
		r.w.admission.runs.Add(1)
		r.d.Leave()
	}
}

func (r *request) exit() {
	if r.entered {
		r.w.admission.runs.Add(-1)
	}
}

// crowded says that the worker has as many runs in its hands as it takes.
func (w *Worker) crowded() bool { return w.admission.runs.Load() >= int64(w.cfg.Slots) }

// full refuses, and counts it.
func (w *Worker) full(limit, remediate, format string, args ...any) *fullError {
	w.metrics.full.WithLabelValues(limit).Inc()
	return &fullError{limit: limit, message: fmt.Sprintf(format, args...), remediate: remediate}
}

func (w *Worker) fullOfSandboxes(live int64) *fullError {
	return w.full(limitSandboxes, "A place comes free when another agent's work ends. An operator can raise ROBOCO_SANDBOX_MAX.",
		"the place is full: %d sandboxes live, as many as there may be at once (ROBOCO_SANDBOX_MAX)", live)
}

func (w *Worker) fullOfRuns(waited time.Duration) *fullError {
	return w.full(limitRoom, "Many agents ask at once. An operator can add workers or raise ROBOCO_SANDBOX_SLOTS.",
		"the place is full: no worker had room for this request within %s; this one has %d in its hands (ROBOCO_SANDBOX_SLOTS)",
		waited.Round(time.Second), w.cfg.Slots)
}

// await is the context of one wait: it ends with the run, when the wait has lasted too long (cause is made then), or when the
// worker is about to end and this run has made nothing yet.
func (r *run) await(ctx context.Context, cause func() error) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	t := time.AfterFunc(r.patience, func() { cancel(cause()) })
	over := make(chan struct{})
	go func() {
		select {
		case <-r.w.draining:
			if !r.started.Load() {
				cancel(errDraining)
			}
		case <-over:
		}
	}()
	return ctx, sync.OnceFunc(func() { t.Stop(); close(over); cancel(nil) })
}

// queued tells who waits which place it has in the line.
func (r *run) queued(ctx context.Context, engine string) func(position int) {
	return func(position int) {
		r.tell(ctx, events.Progress{Stage: events.StageQueued, Engine: engine, Position: position})
	}
}

// admit waits until the run may make a container: memory is asked for once, for the whole set; then each container takes a
// place, those that were asked for first. leave gives the place back.
func (r *run) admit(ctx context.Context, engine string) (leave func(), err error) {
	if err := r.memory(); err != nil {
		return nil, err
	}
	rank := 1
	if wanted(r.adm.asked, engine) {
		rank = 0
	}
	t := time.Now()
	wait, done := r.await(ctx, func() error {
		return r.w.full(limitCreates, "Many agents ask at once. An operator can add workers or raise ROBOCO_SANDBOX_CREATES.",
			"the place is full: no turn to create a container came within %s; %d are created at once (ROBOCO_SANDBOX_CREATES)", r.patience, r.w.cfg.Creates)
	})
	defer done()
	leave, err = r.w.admission.creates.take(wait, r.ticket, rank, r.queued(ctx, engine))
	r.log.phase("queue", t)
	if err == nil {
		r.started.Store(true)
	}
	return leave, err
}

// awaitPull calls a pull off that stands in line for too long; over is to be called when it stands there no longer.
func (r *run) awaitPull(ctx context.Context, cancel context.CancelCauseFunc) (over func()) {
	wait, done := r.await(ctx, func() error {
		return r.w.full(limitPulls, "Many images are wanted at once. An operator can pull them beforehand or raise ROBOCO_SANDBOX_PULLS.",
			"the place is full: no turn to pull the image came within %s (ROBOCO_SANDBOX_PULLS)", r.patience)
	})
	stop := context.AfterFunc(wait, func() { cancel(context.Cause(wait)) })
	return func() { stop(); done() }
}

// reserve asks for the memory of all that this run has to make, and waits for it at the desk.
func (r *run) reserve(ctx context.Context) error {
	need := r.w.cfg.Memory * int64(r.toMake())
	var free, total atomic.Int64 // as of the last look
	wait, done := r.await(ctx, func() error {
		if total.Load() == 0 { // it never came to the desk
			return r.w.full(limitMemory, "Many agents ask at once, and memory comes free when another agent's work ends. An operator can let sandboxes have more (ROBOCO_SANDBOX_MEMORY_TOTAL).",
				"the place is full: others wait for memory before this sandbox, which needs %d MiB; waited %s", need>>20, r.patience)
		}
		return r.w.full(limitMemory, "Memory comes free when another agent's work ends. An operator can let sandboxes have more (ROBOCO_SANDBOX_MEMORY_TOTAL) or each container less (ROBOCO_SANDBOX_MEMORY).",
			"the place is full: this sandbox needs %d MiB of memory and %d of %d MiB are free; waited %s", need>>20, free.Load()>>20, total.Load()>>20, r.patience)
	})
	defer done()
	t := time.Now()
	defer func() { r.log.phase("memory", t) }()
	leave, err := r.w.admission.desk.take(wait, r.ticket, 0, func(position int) { r.queued(ctx, "")(position + 1) })
	if err != nil {
		return err
	}
	defer leave()
	for told := false; ; told = true {
		left, limit, ok, err := r.take(wait, need)
		if ok || err != nil {
			return err
		}
		free.Store(left)
		total.Store(limit)
		if r.w.makeRoom(wait, need-left) {
			continue
		}
		if !told {
			r.queued(ctx, "")(1)
		}
		select {
		case <-wait.Done():
			return context.Cause(wait)
		case <-r.w.admission.freed:
		case <-time.After(tellEvery): // what other workers free says nothing here
		}
	}
}

// take reserves so much memory for this run if the host has it free, and says what is free of how much. An engine that does
// not tell has enough.
func (r *run) take(wait context.Context, need int64) (free, limit int64, ok bool, err error) {
	for moved := true; moved && !ok; {
		begun := r.w.admission.look()
		have, err := r.w.cfg.Runtime.Capacity(wait)
		if err != nil {
			if wait.Err() != nil {
				return 0, 0, false, context.Cause(wait)
			}
			return 0, 0, false, fmt.Errorf("ask for the memory of the host: %w", err)
		}
		if limit = cmp.Or(r.w.cfg.MemoryTotal, have.Memory); limit == 0 {
			return 0, 0, true, nil
		}
		free, ok = r.w.admission.tryReserve(begun, need, limit, have.Committed, func(free, spoken int64) bool {
			// Where there is no sandbox at all, one is admitted whatever its size: a limit is not what a container uses.
			return need <= free || spoken == 0
		})
		moved = r.w.admission.moved(begun)
	}
	if ok {
		r.keep(need)
	}
	return free, limit, ok, nil
}

// toMake is how many containers the record lacks for the set: engines that are not there, and those that cannot be extended.
func (r *run) toMake() (n int) {
	for _, want := range r.adm.set {
		rec, is := r.recorded(want.Engine)
		if r.claimed(want.Engine) {
			continue
		}
		e, _ := r.w.cfg.Engines.Lookup(want.Engine)
		if !is || !covers(rec.Features, want.Features) && (!e.InPlace || !r.hasFeatureFiles(e, rec)) {
			n++
		}
	}
	return n
}

// keep notes what is reserved for this run.
func (r *run) keep(bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept += bytes
}

// counted gives up to so many reserved bytes back: the engine counts the container by now, or it will never be made.
func (r *run) counted(bytes int64) {
	r.mu.Lock()
	bytes = min(bytes, r.kept)
	r.kept -= bytes
	r.mu.Unlock()
	r.w.admission.giveBack(bytes)
}
