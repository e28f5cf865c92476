package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
)

// freshVerdict is how old a verdict of revoke may be when it is acted on. An older one is asked for again: a flush may
// have wiped it out meanwhile, and another worker adopted the container.
const freshVerdict = 500 * time.Millisecond

// Why a container is removed; a label of the metric.
const (
	reasonEnd        = "end"
	reasonJanitor    = "janitor"
	reasonCleanup    = "cleanup"
	reasonConflict   = "conflict"
	reasonSuperseded = "superseded"
	reasonPool       = "pool" // nobody has claimed it, and it is not wanted any more
)

// remove takes a container away, by ID, if and only if revoke says DEAD of it as it stands now. It returns what
// revoke said, or an empty fate for a container that is gone already.
func (w *Worker) remove(ctx context.Context, id, ownEpoch, reason string) (events.Fate, error) {
	for {
		asked := time.Now()
		c, err := w.cfg.Runtime.Inspect(ctx, id)
		if errors.Is(err, engines.ErrNotFound) {
			return "", nil
		}
		if err != nil {
			return "", fmt.Errorf("inspect %s: %w", id, err)
		}
		if !w.ours(c) {
			return "", fmt.Errorf("remove %s: %w", c.Name, engines.ErrForeign)
		}
		f, err := w.identify(ctx, c)
		if err != nil {
			return "", err
		}
		fate, err := w.fate(ctx, c, f, ownEpoch)
		if err != nil || fate != events.FateDead {
			return fate, err
		}
		if time.Since(asked) > freshVerdict {
			continue
		}
		if err := w.cfg.Runtime.Remove(ctx, id, w.cfg.StopGrace); err != nil {
			return fate, fmt.Errorf("remove %s: %w", c.Name, err)
		}
		if pooled(c) && f.Slug != "" {
			w.forget(ctx, f.Slug, id)
		}
		w.admission.ask()
		w.metrics.removals.WithLabelValues(c.Labels[labelEngine], reason).Inc()
		w.cfg.Log.Info().Str("container", c.Name).Str("engine", c.Labels[labelEngine]).Str("why", reason).Msg("removed")
		return fate, nil
	}
}

// fate asks what is to become of a container as it stands now. Of one from a pool the durable store has the last word.
func (w *Worker) fate(ctx context.Context, c engines.Container, f events.Found, ownEpoch string) (events.Fate, error) {
	fate, err := w.decided(ctx, c, f, ownEpoch)
	if err == nil && fate == events.FateDead && pooled(c) {
		return w.lastWord(ctx, c, f)
	}
	return fate, err
}

// decided is what Redis says of it: of an agent's revoke decides, of nobody's retire.
func (w *Worker) decided(ctx context.Context, c engines.Container, f events.Found, ownEpoch string) (events.Fate, error) {
	if f.Slug == "" {
		fate, err := w.cfg.Bus.Retire(ctx, w.poolOf(c), c.ID)
		if err != nil {
			return "", fmt.Errorf("retire %s: %w", c.Name, err)
		}
		return fate, nil
	}
	present, err := w.present(ctx, f.Slug)
	if err != nil {
		return "", err
	}
	fate, err := w.cfg.Bus.Revoke(ctx, f, ownEpoch, present)
	if err != nil {
		return "", fmt.Errorf("revoke %s: %w", c.Name, err)
	}
	return fate, nil
}

// lastWord is the durable store's, on a container of a pool that is to go as f's, or as nobody's: Redis may have lost a claim, and
// all else, since it was looked at, and given the container away once more. Then Redis forgets that.
func (w *Worker) lastWord(ctx context.Context, c engines.Container, f events.Found) (events.Fate, error) {
	claims, err := w.cfg.Store.Claims(ctx, []string{c.ID})
	if err != nil {
		return "", fmt.Errorf("read what %s was claimed for: %w", c.Name, err)
	}
	if claim, is := claims[c.ID]; is && claim.Agent != f.Slug {
		w.forget(ctx, f.Slug, c.ID)
		return events.FateClaimed, nil
	}
	return events.FateDead, nil
}

// removeAll asks about every container of an agent, side by side, and removes those that are dead.
func (w *Worker) removeAll(ctx context.Context, slug, reason string) error {
	cs, err := w.containersOf(ctx, slug)
	if err != nil {
		return err
	}
	errs := make([]error, len(cs))
	var removals together
	for i, c := range cs {
		removals.Go(func() { _, errs[i] = w.remove(ctx, c.ID, "", reason) })
	}
	removals.Wait()
	return errors.Join(errs...)
}
