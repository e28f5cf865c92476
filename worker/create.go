package worker

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
)

// create makes, starts and proves a container, and records it, in place of old if there is one.
func (r *run) create(ctx context.Context, e engines.Engine, name string, features []string, old *events.Entry) error {
	l := r.launch(e, name, features, old != nil)
	if err := r.pull(ctx, e, l.Image); err != nil {
		return err
	}
	leave, err := r.admit(ctx, e.Name)
	if err != nil {
		return err
	}
	defer leave()
	r.tell(ctx, events.Progress{Stage: events.StageCreating, Engine: e.Name})
	t := time.Now()
	id, err := r.w.cfg.Runtime.Create(ctx, l)
	if err != nil {
		return fmt.Errorf("create %s: %w", l.Name, err)
	}
	r.own(id, e.Name)
	r.counted(l.Memory)
	if err := r.w.cfg.Runtime.Start(ctx, id); err != nil {
		return fmt.Errorf("start %s: %w", l.Name, err)
	}
	r.log.phase("create", t)
	access, err := r.prove(ctx, e, id, l, features)
	if err != nil {
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
func (r *run) launch(e engines.Engine, name string, features []string, replaces bool) engines.Launch {
	if replaces {
		name += "-" + r.epoch
	}
	return engines.Launch{
		Spec: e.Describe(engines.Order{
			Image: e.Image(features), Features: features, Memory: r.w.cfg.Memory,
			Password: newPassword(), AdminPassword: newPassword(),
		}),
		Name: name, Labels: r.launchLabels(e.Name), Network: r.w.cfg.Network,
		Memory: r.w.cfg.Memory, NanoCPUs: r.w.cfg.NanoCPUs, Pids: r.w.cfg.Pids, Loopback: r.w.cfg.Loopback,
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

// prove waits until the server can be worked with: it answers its administrator, its features are active, and it
// answers the agent. A container that exits meanwhile is an error at once.
func (r *run) prove(ctx context.Context, e engines.Engine, id string, l engines.Launch, features []string) (engines.Access, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, e.ReadyWithin, fmt.Errorf("%s was %w: no authenticated answer within %s", e.Name, errNotReady, e.ReadyWithin))
	defer cancel()
	ctx, exited := context.WithCancelCause(ctx)
	var watching together
	watching.Go(func() {
		if code, err := r.w.cfg.Runtime.WaitExit(ctx, id); err == nil {
			exited(r.exitError(context.WithoutCancel(ctx), e.Name, id, code, l))
		}
	})
	access, err := r.makeReady(ctx, e, id, features)
	if err != nil && ctx.Err() == nil { // a connection that broke may be the first sign of an exit: wait for the other
		t := time.NewTimer(500 * time.Millisecond)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	exited(nil)
	watching.Wait()
	return access, err
}

// exitError says why a container stopped; its log tail has every password of it blanked.
func (r *run) exitError(ctx context.Context, engine, id string, code int, l engines.Launch) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	x := &engines.ExitError{Engine: engine, ExitCode: code}
	if c, err := r.w.cfg.Runtime.Inspect(ctx, id); err == nil {
		x.OOMKilled = c.OOMKilled
	}
	if text, err := r.w.cfg.Runtime.Logs(ctx, id, 20); err == nil {
		x.LogTail = blank(strings.TrimSpace(text), l.Env[engines.EnvPassword], l.Env[engines.EnvAdminPassword])
	}
	return x
}

// makeReady polls until the administrator is answered, then activates, verifies and probes as the agent.
func (r *run) makeReady(ctx context.Context, e engines.Engine, id string, features []string) (engines.Access, error) {
	r.tell(ctx, events.Progress{Stage: events.StageProbing, Engine: e.Name})
	c, err := r.w.cfg.Runtime.Inspect(ctx, id)
	if err != nil {
		return engines.Access{}, fmt.Errorf("inspect a new %s: %w", e.Name, err)
	}
	t := time.Now()
	access, err := awaitUp(ctx, e, c)
	r.log.phase("probe", t)
	if err != nil {
		return access, err
	}
	t = time.Now()
	if len(features) > 0 {
		r.tell(ctx, events.Progress{Stage: events.StageActivating, Engine: e.Name})
	}
	if err := e.Activate(ctx, access, features); err != nil {
		return access, fmt.Errorf("activate %s: %w", list(features), err)
	}
	if err := e.Verify(ctx, access, features); err != nil {
		return access, fmt.Errorf("verify %s: %w", list(features), err)
	}
	if err := e.Probe(ctx, access); err != nil {
		return access, fmt.Errorf("probe as the agent: %w", err)
	}
	r.log.phase("activate", t)
	return access, nil
}

// awaitUp asks each address in turn until one answers; the pause between rounds grows from 3 to 25 ms.
func awaitUp(ctx context.Context, e engines.Engine, c engines.Container) (engines.Access, error) {
	if len(c.Addrs) == 0 {
		// It has no address when it is not running: what WaitExit says will be the cause.
		return engines.Access{}, fmt.Errorf("container %s has no address", c.Name)
	}
	limit := 5 * time.Second
	if len(c.Addrs) > 1 {
		limit = time.Second // an address that does not lead there must not keep the other one waiting
	}
	for wait := 3 * time.Millisecond; ; wait = min(wait*3/2, 25*time.Millisecond) {
		for _, addr := range c.Addrs {
			a := accessTo(c, addr)
			actx, cancel := context.WithTimeout(ctx, limit)
			err := e.Up(actx, a)
			cancel()
			if err == nil {
				return a, nil
			}
		}
		if err := pause(ctx, wait); err != nil {
			return engines.Access{}, err
		}
	}
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
	entry, err := r.w.entry(e, r.slug, c, a, features)
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

// blank takes secrets out of a text that people will read.
func blank(text string, secrets ...string) string {
	for _, s := range slices.DeleteFunc(secrets, func(s string) bool { return s == "" }) {
		text = strings.ReplaceAll(text, s, "********")
	}
	return text
}
