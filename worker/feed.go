package worker

import (
	"context"
	"strings"
	"time"

	"github.com/roboco/sandboxd/engines"
)

// follow hears what the container engine says of its containers, for all of this worker that wants to know, until ctx ends.
// Whenever the feed breaks, something may have gone unheard.
func (w *Worker) follow(ctx context.Context) {
	for wait := 100 * time.Millisecond; ctx.Err() == nil; wait = min(wait*2, 5*time.Second) {
		err := w.cfg.Runtime.Events(ctx, func() {
			wait = 100 * time.Millisecond
			w.lives.stands()
			w.observer.all()
		}, w.hear)
		w.lives.broke()
		if ctx.Err() != nil {
			return
		}
		w.cfg.Log.Warn().Err(err).Dur("again_in", wait).Msg("the container engine's event feed broke")
		_ = pause(ctx, wait)
	}
}

// hear takes one event in. Nothing here may wait: what comes later is as urgent.
func (w *Worker) hear(e engines.Event) {
	w.lives.changed(e.ID)
	if slug, ok := strings.CutPrefix(e.Name, agentPrefix); ok && e.Action == engines.Died && e.Labels[labelSandbox] == "" {
		w.observer.one(slug)
	}
	if e.Action == engines.Died && e.Labels[labelPool] != "" {
		w.pool.stir()
	}
}
