package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/roboco/sandboxd/engines"
)

// Times of the primer.
const (
	deriveWithin = 5 * time.Minute // one derivation takes no longer
	primeAgain   = time.Minute     // after a failure, and twice as long after each further one
	primeAtLast  = time.Hour       // but no longer than this
	primeSoon    = 3 * time.Second // another look while somebody else on this host derives
)

// primer knows which primed images this host has, and derives those that are missing: in the background, one at a time, and
// once for each content behind an image's name. Nobody waits for it: until an image is ready its engine starts plainly.
type primer struct {
	w    *Worker
	wake chan struct{}

	mu    sync.Mutex
	ready map[string]bool // tags of images that are there
	spoil map[string]setback
}

// setback is what came of a tag that could not be derived or started.
type setback struct {
	wait  time.Duration
	until time.Time
}

func newPrimer(w *Worker) *primer {
	return &primer{w: w, wake: make(chan struct{}, 1), ready: map[string]bool{}, spoil: map[string]setback{}}
}

// prime makes a round at the start, whenever a plain start has shown that an image may be new, and now and then.
func (p *primer) prime(ctx context.Context) {
	if p.w.cfg.Unprimed {
		return
	}
	for {
		wait := p.w.cfg.JanitorInterval
		p.w.contained("priming", func() {
			if p.round(ctx) {
				wait = min(wait, primeSoon)
			}
		})
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-p.wake:
			t.Stop()
		case <-t.C:
		}
	}
}

// look asks for a round soon.
func (p *primer) look() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// image is the primed image to start in place of an engine's own, or empty where the own one is to be started. It asks what
// stands behind the name now, so that an image that was given another content is not started from what was made of the
// former one.
func (p *primer) image(ctx context.Context, e engines.Engine, base string) string {
	if e.Primed == nil || p.w.cfg.Unprimed {
		return ""
	}
	id, err := p.w.cfg.Runtime.ImageID(ctx, base)
	if err != nil {
		return "" // it is to be pulled, or the engine does not answer: whoever goes on will see
	}
	tag := e.Derivation(base, id).Tag
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ready[tag] && !time.Now().Before(p.spoil[tag].until) {
		return tag
	}
	p.look()
	return ""
}

// forget takes note that an image is gone; false when it was not known to be there.
func (p *primer) forget(tag string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.ready[tag]
	delete(p.ready, tag)
	return known
}

// setBack leaves a tag alone for a while, and says for how long.
func (p *primer) setBack(tag string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.spoil[tag]
	s.wait = min(max(2*s.wait, primeAgain), primeAtLast)
	s.until = time.Now().Add(s.wait)
	p.spoil[tag] = s
	return s.wait
}

// due says that a tag may be tried.
func (p *primer) due(tag string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !time.Now().Before(p.spoil[tag].until)
}

// exited judges a container that stopped before it was ready: a primed image whose start fails is left alone for a while.
func (p *primer) exited(image string, err error) {
	var exit *engines.ExitError
	if !isPrimed(image) || !errors.As(err, &exit) {
		return
	}
	again := p.setBack(image)
	p.w.cfg.Log.Warn().Err(err).Str("image", image).Dur("again_in", again).Msg("a start from a primed image failed; its engine starts plainly meanwhile")
}

// isPrimed says that an image's name is a primed one's.
func isPrimed(image string) bool { return strings.HasPrefix(image, engines.PrimedName+":") }

// round looks at every image that can be primed. again is asked for where somebody else is at it.
func (p *primer) round(ctx context.Context) (again bool) {
	for _, e := range p.w.cfg.Engines {
		for _, base := range primable(e) {
			busy, err := p.ensure(ctx, e, base)
			if err != nil && ctx.Err() == nil {
				p.w.cfg.Log.Warn().Err(err).Str("image", base).Msg("could not look after a primed image")
			}
			again = again || busy
		}
	}
	return again
}

// primable are an engine's images of which primed ones are made.
func primable(e engines.Engine) (images []string) {
	if e.Primed == nil {
		return nil
	}
	for _, image := range []string{e.Bare, e.Feature} {
		if image != "" && !slices.Contains(images, image) {
			images = append(images, image)
		}
	}
	return images
}

// ensure derives one image unless it is there, was tried in vain a short while ago, or somebody on this host is deriving.
// An image that is not there itself is left until it was pulled for somebody who wants it.
func (p *primer) ensure(ctx context.Context, e engines.Engine, base string) (busy bool, err error) {
	id, err := p.w.cfg.Runtime.ImageID(ctx, base)
	if errors.Is(err, engines.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at image %s: %w", base, err)
	}
	have, err := p.w.cfg.Runtime.DerivedImages(ctx)
	if err != nil {
		return false, fmt.Errorf("list primed images: %w", err)
	}
	d := e.Derivation(base, id)
	if slices.ContainsFunc(have, func(i engines.Image) bool {
		return slices.Contains(i.Tags, d.Tag) && i.Labels[engines.LabelPrimed] == id
	}) {
		p.note(d.Tag)
		return false, nil
	}
	p.forget(d.Tag)
	switch {
	case !p.due(d.Tag):
		return false, nil
	case slices.ContainsFunc(have, underWay):
		return true, nil
	}
	p.derive(ctx, e, base, d)
	return false, nil
}

// underWay tells a step of a build that somebody has just begun: two at once would only hinder each other. (Of two that began
// at the same moment the first result loses its name to the second; the labels of a whole image tell it from a step.)
func underWay(i engines.Image) bool {
	return len(i.Tags) == 0 && i.Labels[engines.LabelPrimed] == "" && time.Since(i.Created) < deriveWithin
}

func (p *primer) note(tag string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ready[tag] = true
}

// derive makes one image. Whatever stands against it, a plain start does without.
func (p *primer) derive(ctx context.Context, e engines.Engine, base string, d engines.Derivation) {
	limited, cancel := context.WithTimeoutCause(ctx, deriveWithin, fmt.Errorf("not done within %s: %w", deriveWithin, context.DeadlineExceeded))
	defer cancel()
	log := p.w.cfg.Log.With().Str("image", base).Str("primed", d.Tag).Logger()
	log.Info().Msg("priming an image")
	began := time.Now()
	err := p.w.cfg.Runtime.Derive(limited, d)
	switch {
	case err == nil:
		p.note(d.Tag)
		p.w.metrics.derivations.WithLabelValues(e.Name, "ok").Inc()
		log.Info().Dur("took", time.Since(began)).Msg("image primed")
	case ctx.Err() == nil:
		p.w.metrics.derivations.WithLabelValues(e.Name, "failed").Inc()
		log.Warn().Err(err).Dur("took", time.Since(began)).Dur("again_in", p.setBack(d.Tag)).Msg("image could not be primed; its engine starts plainly")
	}
}
