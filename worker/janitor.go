package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
)

// janitor runs a pass at the start and at every tick.
func (w *Worker) janitor(ctx context.Context) {
	t := time.NewTicker(w.cfg.JanitorInterval)
	defer t.Stop()
	for {
		w.contained("janitor pass", func() {
			if n, err := w.JanitorPass(ctx); err != nil && ctx.Err() == nil {
				w.cfg.Log.Warn().Err(err).Msg("janitor pass was not complete")
			} else if n > 0 {
				w.cfg.Log.Info().Int("changed", n).Msg("janitor pass")
			}
		})
		w.contained("housekeeping", func() { w.housekeep(ctx) })
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// JanitorPass runs one pass now and returns how many containers and names it changed. When a listing fails it does
// nothing to containers: what it cannot see it does not judge.
func (w *Worker) JanitorPass(ctx context.Context) (int, error) {
	cs, err := w.cfg.Runtime.List(ctx, w.cellLabels())
	if err != nil {
		return 0, fmt.Errorf("list sandboxes: %w", err)
	}
	owners, err := w.cfg.Bus.Owners(ctx) // the hashes first, the engine afterwards
	if err != nil {
		return 0, fmt.Errorf("read owners: %w", err)
	}
	alive, err := w.aliveOwners(ctx)
	if err != nil {
		return 0, err
	}
	n := 0
	var errs []error
	for slug, owner := range owners {
		if owner == "" || owner == events.OwnerLease || alive[slug] == owner || w.cfg.ForceLease {
			continue
		}
		if err := w.publishStop(ctx, slug, owner, "its container is not running"); err != nil {
			errs = append(errs, err)
		}
		n++
	}
	whose, err := w.identifyAll(ctx, cs)
	if err != nil {
		return n, errors.Join(append(errs, err)...)
	}
	for _, c := range cs {
		if time.Since(c.Created) < w.cfg.Grace || whose[c.ID].Slug == "" { // what nobody has claimed is tended by the pool's keeper
			continue
		}
		changed, err := w.judge(ctx, c, whose[c.ID])
		if err != nil {
			errs = append(errs, err)
		}
		if changed {
			n++
		}
	}
	return n, errors.Join(errs...)
}

// aliveOwners lists the owner strings of every agent container that runs, by slug.
func (w *Worker) aliveOwners(ctx context.Context) (map[string]string, error) {
	cs, err := w.cfg.Runtime.ListNamed(ctx, agentPrefix)
	if err != nil {
		return nil, fmt.Errorf("list agents' containers: %w", err)
	}
	alive := map[string]string{}
	for _, c := range cs {
		if !c.Running || w.isSandbox(c) {
			continue
		}
		slug := c.Name[len(agentPrefix):]
		owner, err := w.aliveOwner(ctx, slug)
		if err != nil {
			return nil, err
		}
		if owner != "" {
			alive[slug] = owner
		}
	}
	return alive, nil
}

// judge asks what is to become of one container, and does it.
func (w *Worker) judge(ctx context.Context, c engines.Container, f events.Found) (changed bool, err error) {
	fate, err := w.remove(ctx, c.ID, "", reasonJanitor)
	if err != nil {
		return false, err
	}
	switch fate {
	case events.FateDead:
		return true, nil
	case events.FateLost:
		return w.adopt(ctx, c, f)
	case events.FateRecorded:
		return w.restoreName(ctx, c, f.Slug)
	default:
		return false, nil
	}
}

// restoreName gives a recorded container its name back where a replacement that died took it away.
func (w *Worker) restoreName(ctx context.Context, c engines.Container, slug string) (bool, error) {
	e, ok := w.cfg.Engines.Lookup(c.Labels[labelEngine])
	if !ok || c.Name == containerName(e, slug) {
		return false, nil
	}
	err := w.cfg.Runtime.Rename(ctx, c.ID, containerName(e, slug))
	if errors.Is(err, engines.ErrNameTaken) || errors.Is(err, engines.ErrNotFound) {
		return false, nil // another pass will find out
	}
	if err != nil {
		return false, fmt.Errorf("rename %s: %w", c.Name, err)
	}
	return true, nil
}

// housekeep does what is not about containers; each part is best effort and comes again at the next tick.
func (w *Worker) housekeep(ctx context.Context) {
	if _, err := w.mirrorSwitch(ctx); err != nil && ctx.Err() == nil {
		w.cfg.Log.Warn().Err(err).Msg("could not mirror the master switch")
	}
	if _, err := w.cfg.Bus.SweepConsumers(ctx); err != nil && ctx.Err() == nil {
		w.cfg.Log.Warn().Err(err).Msg("could not sweep idle consumers")
	}
	if err := w.sweepPrimed(ctx); err != nil && ctx.Err() == nil {
		w.cfg.Log.Warn().Err(err).Msg("could not look after every primed image")
	}
	if err := w.publishDebts(ctx); err != nil && ctx.Err() == nil {
		w.cfg.Log.Warn().Err(err).Msg("could not publish what is owed")
	}
	if _, err := w.cfg.Store.PruneRequests(ctx, time.Now().Add(-w.cfg.Retain)); err != nil && ctx.Err() == nil {
		w.cfg.Log.Warn().Err(err).Msg("could not prune the request history")
	}
}

// publishDebts publishes events that were stored and never published: their gateway died in between.
func (w *Worker) publishDebts(ctx context.Context) error {
	owed, err := w.cfg.Store.Unpublished(ctx, owedAge, 100)
	if err != nil {
		return fmt.Errorf("read owed events: %w", err)
	}
	for _, out := range owed {
		e, err := events.Decode(out.Event)
		if err != nil {
			w.cfg.Log.Error().Err(err).Str("event", out.EventID).Msg("an owed event cannot be read")
			continue
		}
		if err := w.publishOwed(ctx, out, e); err != nil {
			return err
		}
	}
	return nil
}

// owedAge spares events that a gateway is publishing at this moment.
const owedAge = 5 * time.Second
