package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/pkg/jsonmessage"

	"github.com/roboco/sandboxd/engines"
)

// pull is one pull under way or in line, shared by everyone who waits for the image.
type pull struct {
	ref, key string        // as the first caller wrote it, and normalized
	done     chan struct{} // closed when err is final
	err      error

	mu       sync.Mutex
	progress engines.PullProgress
	changed  chan struct{} // closed and replaced at each change of progress
}

// EnsureImage looks for the image and pulls it only when it is absent, once for all callers in this process and, from its
// turn on, within Config.PullTimeout; Config.Pulls images are pulled at once, the others wait in the order they came. Every caller may leave early by its ctx; the pull goes on. progress (may be nil) is called from
// this goroutine, with the latest figures. Every failure is a *engines.PullError.
func (r *Runtime) EnsureImage(ctx context.Context, ref string, progress func(engines.PullProgress)) error {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return &engines.PullError{Image: ref, Cause: err}
	}
	switch err := r.hasImage(ctx, ref); {
	case err == nil:
		return nil
	case !errors.Is(err, engines.ErrNotFound):
		return pullError(ref, err)
	}
	return r.join(ref, reference.TagNameOnly(named).String()).wait(ctx, ref, progress)
}

// ImageID is the content's digest behind an image's name, without a pull; ErrNotFound when it is not there.
func (r *Runtime) ImageID(ctx context.Context, ref string) (string, error) {
	ctx, cancel := r.limit(ctx)
	defer cancel()
	found, err := r.cli.ImageInspect(ctx, ref)
	if err != nil {
		return "", fmt.Errorf("inspect image %s: %w", ref, classify(err))
	}
	return found.ID, nil
}

func (r *Runtime) hasImage(ctx context.Context, ref string) error {
	ctx, cancel := r.limit(ctx)
	defer cancel()
	_, err := r.cli.ImageInspect(ctx, ref)
	return classify(err)
}

// join finds the pull that is under way, or begins it, or puts it in line.
func (r *Runtime) join(ref, key string) *pull {
	r.pullMu.Lock()
	defer r.pullMu.Unlock()
	if p, ok := r.pulls[key]; ok {
		return p
	}
	p := &pull{ref: ref, key: key, done: make(chan struct{}), changed: make(chan struct{}), progress: engines.PullProgress{Image: ref}}
	r.pulls[key] = p
	if r.pullsNow < r.pullsMax {
		r.pullsNow++
		r.begin(p)
	} else {
		r.lined = append(r.lined, p)
		p.stand(len(r.lined))
	}
	return p
}

// begin pulls in the background, and hands its turn on. r.pullMu is held.
func (r *Runtime) begin(p *pull) {
	r.pulling.Go(func() {
		began := time.Now()
		p.err = r.pull(p.ref, p)
		if p.err != nil {
			r.log.Warn().Err(p.err).Dur("took", time.Since(began)).Msg("image not pulled")
		} else {
			r.log.Info().Str("image", p.ref).Dur("took", time.Since(began)).Msg("image pulled")
		}
		r.pullMu.Lock()
		delete(r.pulls, p.key)
		r.next()
		r.pullMu.Unlock()
		close(p.done)
	})
}

// next gives the turn of a pull that is over to the first in line. r.pullMu is held.
func (r *Runtime) next() {
	if len(r.lined) == 0 {
		r.pullsNow--
		return
	}
	first := r.lined[0]
	r.lined = r.lined[1:]
	for i, p := range r.lined {
		p.stand(i + 1)
	}
	first.stand(0)
	r.begin(first)
}

// pull does it once: whoever wants another try calls again.
func (r *Runtime) pull(ref string, p *pull) error {
	ctx, cancel := context.WithTimeoutCause(r.closing, r.pullLimit, fmt.Errorf("not done within %s: %w", r.pullLimit, context.DeadlineExceeded))
	defer cancel()
	stream, err := r.cli.ImagePull(ctx, ref, image.PullOptions{})
	if err == nil {
		err = errors.Join(p.read(stream), stream.Close())
	}
	if err == nil {
		err = r.hasImage(ctx, ref)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return pullError(ref, err)
}

// eachMessage hands out what the engine says of a pull or a build, to the end, which may be an error of the engine's.
func eachMessage(stream io.Reader, each func(jsonmessage.JSONMessage)) error {
	for dec := json.NewDecoder(stream); ; {
		var m jsonmessage.JSONMessage
		switch err := dec.Decode(&m); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read the progress: %w", err)
		case m.Error != nil:
			return m.Error
		}
		each(m)
	}
}

// read follows the engine's messages, each about one layer, to the end.
func (p *pull) read(stream io.Reader) error {
	sum := layers{}
	return eachMessage(stream, func(m jsonmessage.JSONMessage) {
		if sum.add(m) {
			p.report(sum.total())
		}
	})
}

// report makes new figures known to all who wait.
func (p *pull) report(done, total int64) {
	p.change(func(now *engines.PullProgress) { now.Done, now.Total = done, total })
}

// stand makes the place in the line known to all who wait; 0 is the turn.
func (p *pull) stand(place int) {
	p.change(func(now *engines.PullProgress) { now.Queued = place })
}

func (p *pull) change(f func(*engines.PullProgress)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.progress)
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *pull) latest() (engines.PullProgress, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.progress, p.changed
}

// wait follows the pull for one caller. A slow progress function holds up nobody else.
func (p *pull) wait(ctx context.Context, ref string, progress func(engines.PullProgress)) error {
	var told engines.PullProgress
	for {
		now, changed := p.latest()
		if now.Image = ref; progress != nil && now != told && (now.Done+now.Total > 0 || now.Queued != told.Queued) {
			progress(now)
			told = now
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return pullError(ref, fmt.Errorf("stopped waiting: %w", context.Cause(ctx)))
		case <-p.done:
			if last, _ := p.latest(); progress != nil && last.Done != told.Done {
				last.Image = ref
				progress(last)
			}
			return p.err
		}
	}
}

// layers are the bytes of each layer's download, by layer.
type layers map[string]struct{ done, total int64 }

// add takes one message in, and reports whether the sum changed.
func (s layers) add(m jsonmessage.JSONMessage) bool {
	l, known := s[m.ID]
	switch {
	case m.Status == "Downloading" && m.Progress != nil:
		l.done, l.total = m.Progress.Current, max(m.Progress.Total, l.total)
	case known && (m.Status == "Download complete" || m.Status == "Pull complete"):
		l.done = l.total
	default:
		return false
	}
	changed := s[m.ID] != l
	s[m.ID] = l
	return changed || !known
}

func (s layers) total() (done, total int64) {
	for _, l := range s {
		done, total = done+l.done, total+l.total
	}
	return done, total
}
