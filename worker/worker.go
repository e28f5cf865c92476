package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/state"
)

// ProjectReader reads projects.
type ProjectReader interface {
	Project(ctx context.Context, slug string) (state.Project, error)
	Projects(ctx context.Context) ([]state.Project, error)
}

// Worker is one consumer of the work stream with its janitor, its observer and its history writer.
type Worker struct {
	cfg     Config
	host    string // the container engine's ID
	metrics *metrics
	runs    *localRuns
	rows    chan state.Request

	admission *admission
	pool      *pool
	ahead     *ahead
	lives     *liveness
	observer  *observer
	primer    *primer
	draining  chan struct{} // closed when the worker is about to end
}

// New makes a worker. It touches nothing yet.
func New(cfg Config) *Worker {
	cfg = cfg.withDefaults()
	w := &Worker{
		cfg: cfg, metrics: newMetrics(cfg.Register), runs: newLocalRuns(),
		rows:      make(chan state.Request, historyBacklog),
		admission: newAdmission(cfg.Creates), pool: newPool(), draining: make(chan struct{}),
	}
	w.ahead, w.lives, w.observer = newAhead(w), newLiveness(w.inspect), newObserver(w)
	w.primer = newPrimer(w)
	return w
}

// inspect is a look at the container engine.
func (w *Worker) inspect(ctx context.Context, idOrName string) (engines.Container, error) {
	return w.cfg.Runtime.Inspect(ctx, idOrName)
}

// Run works until ctx ends, then drains: what is under way may finish within Config.Drain, what still stands in a line is
// handed back at once, and so is the rest when the time is over. A worker runs once.
// Only what cannot be worked without is an error: a container engine that does not answer at the start for
// Config.StartWithin, or has no network for the sandboxes.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.greet(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // told to end before it had begun
		}
		return err
	}
	writing := make(chan struct{})
	stopWriting := make(chan struct{})
	outlasting := context.WithoutCancel(ctx)
	go func() { defer close(writing); w.writeHistory(outlasting, stopWriting) }()
	defer func() { close(stopWriting); <-writing }()
	defer w.closePools()

	g, ctx := errgroup.WithContext(ctx)
	defer context.AfterFunc(ctx, func() { close(w.draining) })()
	g.Go(func() error {
		return w.cfg.Bus.Consume(ctx, events.ConsumeOptions{Name: w.cfg.Name, Slots: w.cfg.Slots, Drain: w.cfg.Drain}, w.handle)
	})
	g.Go(func() error { w.janitor(ctx); return nil })
	g.Go(func() error { w.keepPools(ctx); return nil })
	g.Go(func() error { w.follow(ctx); return nil })
	g.Go(func() error { w.observer.run(ctx); return nil })
	g.Go(func() error { return w.followProjects(ctx) })
	g.Go(func() error { w.ahead.run(ctx); return nil })
	g.Go(func() error { w.primer.prime(ctx); return nil })
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("worker %s: %w", w.cfg.Name, err)
	}
	return nil
}

// greet asks the container engine for what a worker cannot do without: its name, and the network. An engine that does not
// answer is asked again for a while: it may start beside this process.
func (w *Worker) greet(ctx context.Context) (err error) {
	over := time.Now().Add(w.cfg.StartWithin)
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		err = w.meet(ctx)
		if err == nil || !errors.Is(err, engines.ErrUnavailable) || time.Now().After(over) {
			return err
		}
		w.cfg.Log.Warn().Err(err).Dur("again_in", wait).Msg("waiting for the container engine")
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}

func (w *Worker) meet(ctx context.Context) (err error) {
	if w.host, err = w.cfg.Runtime.HostID(ctx); err != nil {
		return fmt.Errorf("ask the container engine who it is: %w", err)
	}
	if err := w.cfg.Runtime.EnsureNetwork(ctx, w.cfg.Network); err != nil {
		return fmt.Errorf("network %s: %w", w.cfg.Network, err)
	}
	if w.cfg.Creates == 0 {
		have, err := w.cfg.Runtime.Capacity(ctx)
		if err != nil {
			return fmt.Errorf("ask the container engine what it has: %w", err)
		}
		w.cfg.Creates = max(fewestCreates, 2*have.CPUs)
		w.admission.creates.widen(w.cfg.Creates)
	}
	return nil
}

// fewestCreates is what a host with few processors may create at once: two whole sets.
const fewestCreates = 6

// handle is what one delivery is for.
func (w *Worker) handle(ctx context.Context, d events.Delivery) {
	switch {
	case d.Foreign:
		w.handleForeign(ctx, d)
	case d.Event.Type == events.SandboxRequested:
		w.handleRequest(ctx, d)
	case d.Event.Type == events.LogsRequested:
		w.handleLogs(ctx, d)
	case d.Event.Type == events.WorkStarted:
		w.handleStarted(ctx, d)
	default:
		w.handleEnded(ctx, d)
	}
}

// settleWithin limits one call that settles something after its context may have ended.
const settleWithin = 10 * time.Second

// settled makes a call that ends a delivery, whatever has become of the handler's context.
func (w *Worker) settled(d events.Delivery, what string, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), settleWithin)
	defer cancel()
	if err := f(ctx); err != nil {
		w.cfg.Log.Warn().Err(err).Str("agent", d.Event.Subject).Str("entry", d.Entry).Str("event", string(d.Event.Type)).Msg(what + " failed; left for another delivery")
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

func (w *Worker) finish(d events.Delivery) {
	_ = w.settled(d, "finish", func(ctx context.Context) error {
		_, err := w.cfg.Bus.Finish(ctx, d)
		return err
	})
}

// localRuns are the provisions of this process, so that an end stops them at once instead of at their next beat.
type localRuns struct {
	mu   sync.Mutex
	next int
	stop map[string]map[int]func()
}

func newLocalRuns() *localRuns { return &localRuns{stop: map[string]map[int]func(){}} }

func (l *localRuns) add(slug string, stop func()) (done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next++
	n := l.next
	if l.stop[slug] == nil {
		l.stop[slug] = map[int]func(){}
	}
	l.stop[slug][n] = stop
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if delete(l.stop[slug], n); len(l.stop[slug]) == 0 {
			delete(l.stop, slug)
		}
	}
}

func (l *localRuns) cancel(slug string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, stop := range l.stop[slug] {
		stop()
	}
}

func (c Config) withDefaults() Config {
	set := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	set(&c.Grace, 180*time.Second)
	set(&c.JanitorInterval, 30*time.Second)
	set(&c.StopGrace, 300*time.Millisecond)
	set(&c.Drain, 30*time.Second)
	set(&c.Beat, time.Second)
	set(&c.PoolTick, time.Second)
	set(&c.GiveWay, 30*time.Second)
	set(&c.StartWithin, 15*time.Second)
	set(&c.Retain, 30*24*time.Hour)
	set(&c.QueueTimeout, 2*time.Minute)
	if c.Name == "" {
		host, _ := os.Hostname()
		c.Name = host + "-" + uuid.NewString()[:8]
	}
	if c.Cell == "" {
		c.Cell = "sandbox"
	}
	if c.Network == "" {
		c.Network = "roboco_default"
	}
	if c.Memory == 0 {
		c.Memory = 512 << 20
	}
	if c.NanoCPUs == 0 {
		c.NanoCPUs = 1e9
	}
	if c.Pids == 0 {
		c.Pids = 256
	}
	if c.Slots == 0 {
		c.Slots = 32
	}
	return c
}
