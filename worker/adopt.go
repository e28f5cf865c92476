package worker

import (
	"context"
	"errors"
	"fmt"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
)

// adopt records a live container again that Redis has forgotten: the one that bears the name, else the oldest, by a
// fresh listing, if it answers with the password from its environment.
func (w *Worker) adopt(ctx context.Context, c engines.Container, f events.Found) (bool, error) {
	slug := f.Slug
	e, ok := w.cfg.Engines.Lookup(c.Labels[labelEngine])
	if !ok {
		return false, nil
	}
	chosen, err := w.firstInLine(ctx, slug, e, c.ID)
	if err != nil || !chosen {
		return false, err
	}
	c, err = w.cfg.Runtime.Inspect(ctx, c.ID)
	if errors.Is(err, engines.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("inspect %s: %w", c.ID, err)
	}
	_, adopted, err := w.recordLost(ctx, e, c, f, "")
	if err != nil || !adopted {
		return false, err
	}
	_, err = w.restoreName(ctx, c, slug)
	return true, err
}

// recordLost records a container that was just inspected, if it answers and Redis still takes it for lost. Under a lease it
// does so for the run of that epoch alone.
func (w *Worker) recordLost(ctx context.Context, e engines.Engine, c engines.Container, f events.Found, ownEpoch string) (_ events.Entry, adopted bool, err error) {
	access, active, ok := w.answers(ctx, e, c)
	if !ok {
		return events.Entry{}, false, nil
	}
	present, err := w.present(ctx, f.Slug)
	if err != nil {
		return events.Entry{}, false, err
	}
	if present.Owner != f.Tenancy.Owner {
		return events.Entry{}, false, nil
	}
	f.FirstLife = c.FirstLife
	entry, err := w.entry(e, f, c, access, active)
	if err != nil {
		return events.Entry{}, false, err
	}
	fate, err := w.cfg.Bus.Adopt(ctx, f, ownEpoch, present, entry)
	if err != nil {
		return events.Entry{}, false, fmt.Errorf("adopt %s: %w", c.Name, err)
	}
	if fate != events.FateAdopted {
		return events.Entry{}, false, nil
	}
	w.metrics.adoptions.WithLabelValues(e.Name).Inc()
	w.cfg.Log.Info().Str("container", c.Name).Str("agent", f.Slug).Msg("adopted a container that Redis had forgotten")
	return entry, true, nil
}

// firstInLine says whether this container is the one of its engine and agent to adopt. The listing of the pass has
// grown old by now, so it is made anew.
func (w *Worker) firstInLine(ctx context.Context, slug string, e engines.Engine, id string) (bool, error) {
	cs, err := w.cfg.Runtime.List(ctx, w.cellLabels()) // what it claimed is not labelled as its own
	if err != nil {
		return false, fmt.Errorf("list the containers of %s: %w", slug, err)
	}
	whose, err := w.identifyAll(ctx, cs)
	if err != nil {
		return false, err
	}
	best := ""
	var oldest engines.Container
	for _, c := range cs {
		if whose[c.ID].Slug != slug || c.Labels[labelEngine] != e.Name || !c.Running {
			continue
		}
		if c.Name == containerName(e, slug) {
			best = c.ID
		}
		if oldest.ID == "" || newer(whose[oldest.ID].Epoch, whose[c.ID].Epoch) {
			oldest = c
		}
	}
	if best == "" {
		best = oldest.ID
	}
	return best == id, nil
}
