package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/state"
)

// claim takes a ready container from a pool and records it. taken is false when no pool has one; then one must be made.
func (r *run) claim(ctx context.Context, e engines.Engine, name string, features []string) (taken bool, err error) {
	r.w.pool.demand.note(e.Name, features)
	pools := r.w.pool.candidates(e, features)
	for len(pools) > 0 {
		t := time.Now()
		c, f, err := r.w.cfg.Bus.Claim(ctx, r.d, r.epoch, e.Name, pools)
		if err != nil {
			return false, fmt.Errorf("claim a ready %s: %w", e.Name, err)
		}
		if f == events.Fenced {
			return false, errFenced
		}
		r.w.pool.stir()
		if c.ID == "" {
			r.w.metrics.claims.WithLabelValues(e.Name, "empty").Inc()
			return false, nil
		}
		r.own(c.ID, e.Name)
		taken, err := r.takeClaimed(ctx, e, name, c, features)
		r.log.phase("claim", t)
		if err != nil {
			return false, err
		}
		if taken {
			r.w.metrics.claims.WithLabelValues(e.Name, "ok").Inc()
			return true, nil
		}
		r.w.metrics.claims.WithLabelValues(e.Name, "dead").Inc()
		if _, err := r.w.remove(ctx, c.ID, r.epoch, reasonCleanup); err != nil {
			return false, err
		}
	}
	return false, nil
}

// takeClaimed gives a claimed container its name, and records it. That it was claimed is in the durable store before it is
// recorded: its labels do not tell whose it is. false: it is dead, or another's by the durable store.
func (r *run) takeClaimed(ctx context.Context, e engines.Engine, name string, c events.Claimed, features []string) (bool, error) {
	var steps together
	var known bool
	var stored, named, looked error
	var box engines.Container
	steps.Go(func() { known, stored = r.storeClaim(ctx, e, c.ID, c.Claim) })
	steps.Go(func() { box, looked = r.w.cfg.Runtime.Inspect(ctx, c.ID) })
	steps.Go(func() { named = r.w.cfg.Runtime.Rename(ctx, c.ID, name) })
	steps.Wait()
	switch {
	case stored == nil && !known:
		return false, r.letGo(ctx, e, box, name, named)
	case errors.Is(looked, engines.ErrNotFound) || looked == nil && !box.FirstLife:
		return false, nil
	case looked != nil:
		return false, fmt.Errorf("inspect a claimed %s: %w", e.Name, looked)
	case stored != nil:
		return false, stored
	case errors.Is(named, engines.ErrNotFound):
		return false, nil
	case named != nil:
		return false, fmt.Errorf("rename a claimed %s: %w", e.Name, named)
	}
	if len(box.Addrs) == 0 {
		return false, fmt.Errorf("the claimed %s has no address", e.Name)
	}
	access := accessTo(box, box.Addrs[0])
	if more := missing(c.Pool.Features, features); len(more) > 0 {
		r.tell(ctx, events.Progress{Stage: events.StageActivating, Engine: e.Name})
		if err := activate(ctx, e, access, features); err != nil {
			return false, err
		}
	} else {
		features = c.Pool.Features
	}
	return true, r.recordClaimed(ctx, e, c, box, access, features)
}

// letGo gives a container back that is another's by the durable store, if it has our name by now.
func (r *run) letGo(ctx context.Context, e engines.Engine, c engines.Container, name string, named error) error {
	if named != nil || c.ID == "" {
		return nil //nolint:nilerr // it did not get our name: the janitor sees to it
	}
	f, err := r.w.identify(ctx, c)
	if err != nil {
		return err
	}
	c.Name = name
	return r.setAside(ctx, e, c, f.Slug)
}

// storeClaim lets the durable store know what a container was claimed for. false: it is another's there; Redis, which had lost that,
// forgets this claim.
func (r *run) storeClaim(ctx context.Context, e engines.Engine, id string, c events.Claim) (known bool, err error) {
	err = r.w.cfg.Store.RecordClaim(ctx, state.Claim{
		ContainerID: id, RequestID: r.q.RequestID, Agent: r.slug, Engine: e.Name, Host: r.w.host,
		Task: c.Tenancy.Task, Project: c.Tenancy.Project, Owner: c.Tenancy.Owner, Born: c.Born, Epoch: c.Epoch, ClaimedAt: time.Now().UTC(),
	})
	if errors.Is(err, state.ErrClaimed) {
		r.w.forget(ctx, r.slug, id)
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("store the claim of a %s: %w", e.Name, err)
	}
	return true, nil
}

func (r *run) recordClaimed(ctx context.Context, e engines.Engine, c events.Claimed, box engines.Container, a engines.Access, features []string) error {
	entry, err := r.w.entry(e, events.Found{Slug: r.slug, Epoch: c.Epoch, Born: c.Born, Pooled: true}, box, a, features)
	if err != nil {
		return err
	}
	outcome, reason := events.Pooled, ""
	if r.died[e.Name] {
		outcome, reason = events.Replaced, "data and credentials are new: the former container had died"
	}
	if err := r.put(ctx, e, entry, outcome, reason); err != nil {
		return err
	}
	r.tell(ctx, events.Progress{Stage: events.StageReady, Engine: e.Name})
	return nil
}
