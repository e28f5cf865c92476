package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/roboco/sandboxd/engines"
)

// Ages at which what may still be somebody's is nobody's any more.
const (
	namelessFor = time.Hour      // the remains of a build, or an image that another build took the name from
	formerFor   = 24 * time.Hour // an image of another recipe: another version of sandboxd may work beside this one
)

// sweepPrimed removes primed images of which nobody will make a container again. That a container uses one keeps it: the
// engine refuses then, and another pass comes.
func (w *Worker) sweepPrimed(ctx context.Context) error {
	all, err := w.cfg.Runtime.DerivedImages(ctx)
	if err != nil {
		return fmt.Errorf("list primed images: %w", err)
	}
	for _, i := range all {
		why, uerr := w.unused(ctx, i)
		if uerr != nil {
			err = errors.Join(err, uerr)
		}
		if why == "" {
			continue
		}
		switch rerr := w.cfg.Runtime.RemoveDerived(ctx, i.ID); {
		case rerr == nil:
			for _, tag := range i.Tags {
				w.primer.forget(tag)
			}
			w.cfg.Log.Info().Str("image", i.Labels[engines.LabelPrimedBase]).Strs("primed", i.Tags).Str("because", why).Msg("removed a primed image")
		case !errors.Is(rerr, engines.ErrInUse) && !errors.Is(rerr, engines.ErrForeign):
			err = errors.Join(err, fmt.Errorf("remove primed image %s: %w", i.ID, rerr))
		}
	}
	return err
}

// unused says why an image will not be started from again, or nothing. It is judged by the name of its base alone: whether this
// worker has that image among its own says nothing of the others on this host.
func (w *Worker) unused(ctx context.Context, i engines.Image) (why string, err error) {
	age := time.Since(i.Created)
	if len(i.Tags) == 0 && age > namelessFor {
		return "it has no name", nil
	}
	if !slices.ContainsFunc(i.Tags, isPrimed) {
		return "", nil
	}
	base := i.Labels[engines.LabelPrimedBase]
	switch id, err := w.cfg.Runtime.ImageID(ctx, base); {
	case errors.Is(err, engines.ErrNotFound):
		return "its base is gone", nil
	case err != nil:
		return "", fmt.Errorf("look at image %s: %w", base, err)
	case id != i.Labels[engines.LabelPrimed]:
		return "its base has changed", nil
	case age > formerFor && !w.isRecipe(i.Labels[engines.LabelPrimedRecipe]):
		return "it is of another version", nil
	}
	return "", nil
}

func (w *Worker) isRecipe(recipe string) bool {
	return slices.ContainsFunc(w.cfg.Engines, func(e engines.Engine) bool { return e.Primed != nil && e.Primed.Recipe() == recipe })
}
