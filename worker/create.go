package worker

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
)

// create makes, starts and proves a container, and records it, in place of old if there is one.
func (r *run) create(ctx context.Context, e engines.Engine, name string, features []string, old *events.Entry) error {
	l := r.launch(ctx, e, name, features, old != nil)
	if !isPrimed(l.Image) { // what a primed one is derived from was seen to be there
		if err := r.pull(ctx, e, l.Image); err != nil {
			return err
		}
		if e.Primed != nil {
			r.w.primer.look()
		}
	}
	leave, err := r.admit(ctx, e.Name)
	if err != nil {
		return err
	}
	defer leave()
	r.tell(ctx, events.Progress{Stage: events.StageCreating, Engine: e.Name})
	t := time.Now()
	id, l, err := r.w.create(ctx, e, features, l)
	if err != nil {
		return err
	}
	r.own(id, e.Name)
	r.counted(l.Memory)
	if err := r.w.cfg.Runtime.Start(ctx, id); err != nil {
		return fmt.Errorf("start %s: %w", l.Name, err)
	}
	r.log.phase("create", t)
	r.w.started(e, l)
	access, err := r.proof().prove(ctx, e, id, l, features)
	if err != nil {
		r.w.primer.exited(l.Image, err)
		return err
	}
	if old != nil {
		if err := r.swapNames(ctx, id, name, *old); err != nil {
			return err
		}
	}
	return r.recordNew(ctx, e, id, access, features, old)
}

// launch says what the container is to be. A replacement is born under a name of its own, for the old one lives on
// until the new one is proven.
func (r *run) launch(ctx context.Context, e engines.Engine, name string, features []string, replaces bool) engines.Launch {
	if replaces {
		name += "-" + r.epoch
	}
	return r.w.launch(ctx, e, name, features, r.launchLabels(e.Name))
}

// launch is a container of an engine with these features active, and passwords of its own: from the primed image where there
// is one of what stands behind the engine's image now, which the container then names all the same.
func (w *Worker) launch(ctx context.Context, e engines.Engine, name string, features []string, labels map[string]string) engines.Launch {
	o := engines.Order{
		Image: e.Image(features), Features: features, Memory: w.cfg.Memory,
		Password: newPassword(), AdminPassword: newPassword(),
	}
	describe := e.Describe
	if primed := w.primer.image(ctx, e, o.Image); primed != "" {
		labels[engines.LabelImage] = o.Image
		o.Image, describe = primed, e.Primed.Describe
	}
	return engines.Launch{
		Spec: describe(o),
		Name: name, Labels: labels, Network: w.cfg.Network,
		Memory: w.cfg.Memory, NanoCPUs: w.cfg.NanoCPUs, Pids: w.cfg.Pids, Loopback: w.cfg.Loopback,
	}
}

// create makes a container as launch has described it, and returns what it then is: where the primed image was removed since it
// was looked up, it is a plain one.
func (w *Worker) create(ctx context.Context, e engines.Engine, features []string, l engines.Launch) (id string, _ engines.Launch, err error) {
	id, err = w.cfg.Runtime.Create(ctx, l)
	if errors.Is(err, engines.ErrNotFound) && w.primer.forget(l.Image) {
		l = w.launch(ctx, e, l.Name, features, l.Labels)
		id, err = w.cfg.Runtime.Create(ctx, l)
	}
	if err != nil {
		return "", l, fmt.Errorf("create %s: %w", l.Name, err)
	}
	return id, l, nil
}

// started counts a start by how it was made.
func (w *Worker) started(e engines.Engine, l engines.Launch) {
	kind := "plain"
	if isPrimed(l.Image) {
		kind = "primed"
	}
	if e.Primed != nil {
		w.metrics.starts.WithLabelValues(e.Name, kind).Inc()
	}
}

// newPassword is 16 random bytes as 32 hex characters.
func newPassword() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // it never fails: it ends the process instead
	return hex.EncodeToString(b)
}

// pull gets the image, and tells how far it has come, about once a second. The time in the line of pulls is bounded as in
// every line.
func (r *run) pull(ctx context.Context, e engines.Engine, image string) error {
	t := time.Now()
	var told time.Time
	var lined engines.PullProgress
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := func() {}
	defer func() { done() }()
	defer r.w.ahead.yield()()
	err := r.w.cfg.Runtime.EnsureImage(ctx, image, func(p engines.PullProgress) {
		switch {
		case p.Queued > 0 && lined.Queued == 0:
			done = r.awaitPull(ctx, cancel)
		case p.Queued == 0 && lined.Queued > 0:
			done()
		}
		moved := p.Queued != lined.Queued
		if lined = p; !moved && time.Since(told) < tellEvery {
			return
		}
		told = time.Now()
		if p.Queued > 0 {
			r.queued(ctx, e.Name)(p.Queued)
			return
		}
		r.tell(ctx, events.Progress{Stage: events.StagePulling, Engine: e.Name, Done: p.Done, Total: p.Total})
	})
	r.log.phase("pull", t)
	if err != nil {
		return &imageError{engine: e, image: image, cause: err}
	}
	return nil
}

// swapNames gives a proven replacement the name, under a lease that was proven just before. Every step can be the
// last one of this process: clear and the janitor go on from each.
func (r *run) swapNames(ctx context.Context, id, name string, old events.Entry) error {
	f, err := r.w.cfg.Bus.Beat(ctx, r.d, r.epoch)
	if err != nil {
		return fmt.Errorf("beat: %w", err)
	}
	if f == events.Fenced {
		return errFenced
	}
	err = r.w.cfg.Runtime.Rename(ctx, old.ID, name+"-"+old.Epoch)
	if err != nil && !errors.Is(err, engines.ErrNotFound) {
		return fmt.Errorf("rename the former %s away: %w", name, err)
	}
	if err := r.w.cfg.Runtime.Rename(ctx, id, name); err != nil {
		return fmt.Errorf("rename the new %s: %w", name, err)
	}
	return nil
}

// recordNew looks once more at what was proven, and records it.
func (r *run) recordNew(ctx context.Context, e engines.Engine, id string, a engines.Access, features []string, old *events.Entry) error {
	c, err := r.w.cfg.Runtime.Inspect(ctx, id)
	if err != nil && !errors.Is(err, engines.ErrNotFound) {
		return fmt.Errorf("inspect a new %s: %w", e.Name, err)
	}
	if err != nil || !c.FirstLife {
		return fmt.Errorf("the new %s died, or began anew, after it was proven", e.Name)
	}
	entry, err := r.w.entry(e, born(c), c, a, features)
	if err != nil {
		return err
	}
	outcome, reason := events.Created, ""
	switch {
	case old != nil:
		outcome, reason = events.Replaced, "data and credentials are new: the image that ran cannot activate "+strings.Join(missing(old.Features, features), ", ")
	case r.died[e.Name]:
		outcome, reason = events.Replaced, "data and credentials are new: the former container had died"
	}
	if err := r.put(ctx, e, entry, outcome, reason); err != nil {
		return err
	}
	r.tell(ctx, events.Progress{Stage: events.StageReady, Engine: e.Name})
	if old != nil {
		r.supersede(ctx, old.ID)
	}
	return nil
}

// supersede removes a container whose place in the record another one has taken; the janitor does the same.
func (r *run) supersede(ctx context.Context, id string) {
	if _, err := r.w.remove(context.WithoutCancel(ctx), id, r.epoch, reasonSuperseded); err != nil {
		r.w.cfg.Log.Warn().Err(err).Str("container", id).Msg("a superseded container is left to the janitor")
	}
}
