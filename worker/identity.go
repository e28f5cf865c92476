package worker

import (
	"context"
	"errors"
	"fmt"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
)

// pooled says that a container was born in a pool: its labels, which cannot change, do not say whose it is.
func pooled(c engines.Container) bool { return c.Labels[labelPool] != "" }

// identify says whose a container is, and under which epoch and tenancy: by its labels, or, where it was born in a pool, by
// its claim. The slug is empty when nobody has claimed it.
func (w *Worker) identify(ctx context.Context, c engines.Container) (events.Found, error) {
	all, err := w.identifyAll(ctx, []engines.Container{c})
	return all[c.ID], err
}

// identifyAll does so for many, by container ID. What Redis has forgotten stands in the durable store; when either does not
// answer nothing is known.
func (w *Worker) identifyAll(ctx context.Context, cs []engines.Container) (map[string]events.Found, error) {
	all := make(map[string]events.Found, len(cs))
	var asked []string
	for _, c := range cs {
		all[c.ID] = born(c)
		if pooled(c) {
			asked = append(asked, c.ID)
		}
	}
	if len(asked) == 0 {
		return all, nil
	}
	claims, err := w.cfg.Bus.Claims(ctx, asked)
	if err != nil {
		return nil, fmt.Errorf("read what containers were claimed for: %w", err)
	}
	var forgotten []string
	for _, id := range asked {
		claim, is := claims[id]
		if !is || claim.Retired { // a container may be retired by mistake when Redis has just lost its claim
			forgotten = append(forgotten, id)
			continue
		}
		f := all[id]
		f.Slug, f.Epoch, f.Born, f.Tenancy = claim.Slug, claim.Epoch, claim.Born, claim.Tenancy
		all[id] = f
	}
	return all, w.recall(ctx, all, forgotten, claims)
}

// recall fills in what the durable store knows of these containers. It wins over a mark in Redis that one was retired.
func (w *Worker) recall(ctx context.Context, all map[string]events.Found, ids []string, marks map[string]events.Claim) error {
	if len(ids) == 0 {
		return nil
	}
	claims, err := w.cfg.Store.Claims(ctx, ids)
	if err != nil {
		return fmt.Errorf("read what containers were claimed for: %w", err)
	}
	for id, claim := range claims {
		f := all[id]
		f.Slug, f.Epoch, f.Born = claim.Agent, claim.Epoch, claim.Born
		f.Tenancy = events.Tenancy{Task: claim.Task, Project: claim.Project, Owner: claim.Owner}
		all[id] = f
		if marks[id].Retired {
			w.forget(ctx, "", id)
		}
	}
	return nil
}

// containersOf gives an agent's containers: those that were born for it, and those that were claimed for it, by whatever
// name.
func (w *Worker) containersOf(ctx context.Context, slug string) ([]engines.Container, error) {
	cs, err := w.cfg.Runtime.List(ctx, w.agentLabels(slug))
	if err != nil {
		return nil, fmt.Errorf("list the containers of %s: %w", slug, err)
	}
	claimed, err := w.cfg.Bus.ClaimedBy(ctx, slug)
	if err != nil {
		return nil, fmt.Errorf("read what %s has claimed: %w", slug, err)
	}
	for _, id := range claimed {
		c, err := w.cfg.Runtime.Inspect(ctx, id)
		if errors.Is(err, engines.ErrNotFound) {
			w.forget(ctx, slug, id)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("inspect a container that %s has claimed: %w", slug, err)
		}
		cs = append(cs, c)
	}
	return cs, nil
}

// forget drops the claim of a container that is no more; one that is left lapses by itself.
func (w *Worker) forget(ctx context.Context, slug, id string) {
	if err := w.cfg.Bus.Forget(ctx, slug, id); err != nil {
		w.cfg.Log.Debug().Err(err).Str("container", id).Msg("the claim of a container that is gone is left to lapse")
	}
}
