package worker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/state"
)

// An image that cannot be had is tried again after this long, then after twice as long, and so on.
const (
	firstImageRetry = 30 * time.Second
	lastImageRetry  = 30 * time.Minute
)

// ahead gets the images that opted-in projects need before a request waits for them: at the start, when a project changes,
// and at every tick, for a change may have gone unheard. One at a time, and none is begun while a request gets one.
type ahead struct {
	w    *Worker
	wake chan struct{} // holds one token when the projects are to be looked at

	mu    sync.Mutex
	pulls int           // that requests have under way
	idle  chan struct{} // closed while they have none

	failed map[string]failedImage // by image; of the loop alone
}

// failedImage is an image that could not be had.
type failedImage struct {
	why   string
	wait  time.Duration
	again time.Time
}

func newAhead(w *Worker) *ahead {
	idle := make(chan struct{})
	close(idle)
	return &ahead{w: w, wake: make(chan struct{}, 1), idle: idle, failed: map[string]failedImage{}}
}

// look has the projects looked at, now or after the look under way.
func (a *ahead) look() {
	select {
	case a.wake <- struct{}{}:
	default: // it is asked for already
	}
}

// yield keeps new pulls back until done is called: a request gets an image of its own.
func (a *ahead) yield() (done func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pulls++; a.pulls == 1 {
		a.idle = make(chan struct{})
	}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.pulls--; a.pulls == 0 {
			close(a.idle)
		}
	}
}

// turn waits until no request gets an image.
func (a *ahead) turn(ctx context.Context) error {
	a.mu.Lock()
	idle := a.idle
	a.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run looks until ctx ends.
func (a *ahead) run(ctx context.Context) {
	t := time.NewTicker(a.w.cfg.JanitorInterval)
	defer t.Stop()
	for ctx.Err() == nil {
		a.w.contained("getting images ahead", func() {
			if err := a.pass(ctx); err != nil && ctx.Err() == nil {
				a.w.cfg.Log.Warn().Err(err).Msg("images are not gotten ahead")
			}
		})
		select {
		case <-ctx.Done():
		case <-a.wake:
		case <-t.C:
		}
	}
}

// pass gets every image that is needed and absent. Only a store that does not answer is an error.
func (a *ahead) pass(ctx context.Context) error {
	projects, err := a.w.cfg.Store.Projects(ctx)
	if err != nil {
		return fmt.Errorf("list projects: %w", err)
	}
	images := imagesOf(a.w.cfg.Engines, projects)
	for image := range a.failed {
		if !slices.Contains(images, image) {
			delete(a.failed, image)
		}
	}
	for _, image := range images {
		if time.Now().Before(a.failed[image].again) {
			continue
		}
		if err := a.turn(ctx); err != nil {
			return err
		}
		a.note(ctx, image, a.w.cfg.Runtime.EnsureImage(ctx, image, nil))
	}
	a.w.pool.replan() // it may have waited for an image
	a.w.metrics.images.WithLabelValues("ready").Set(float64(len(images) - len(a.failed)))
	a.w.metrics.images.WithLabelValues("missing").Set(float64(len(a.failed)))
	return nil
}

// note keeps what became of an image; the same failure is told once.
func (a *ahead) note(ctx context.Context, image string, err error) {
	if err == nil {
		delete(a.failed, image)
		return
	}
	if ctx.Err() != nil {
		return
	}
	last := a.failed[image]
	wait := min(max(2*last.wait, firstImageRetry), lastImageRetry)
	level := zerolog.WarnLevel
	if last.why == err.Error() {
		level = zerolog.DebugLevel
	}
	a.w.cfg.Log.WithLevel(level).Err(err).Str("image", image).Dur("again_in", wait).Msg("an image could not be gotten ahead of requests")
	a.failed[image] = failedImage{why: err.Error(), wait: wait, again: time.Now().Add(wait)}
}

// imagesOf lists the images that these projects need, each once, in the order of the registry.
func imagesOf(all engines.Registry, projects []state.Project) (images []string) {
	for _, e := range all {
		for _, p := range projects {
			image := e.Image(p.Extensions[e.Name])
			if slices.Contains(p.Services, e.Name) && !slices.Contains(images, image) {
				images = append(images, image)
			}
		}
	}
	return images
}

// followProjects has whatever depends on projects looked at anew when one changes.
func (w *Worker) followProjects(ctx context.Context) error {
	if err := w.cfg.Bus.ProjectChanges(ctx, func(string) { w.ahead.look(); w.pool.replan() }); err != nil {
		return fmt.Errorf("follow projects: %w", err)
	}
	return nil
}
