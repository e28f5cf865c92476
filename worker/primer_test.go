package worker_test

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/events/eventstest"
	"github.com/roboco/sandboxd/worker"
	"github.com/roboco/sandboxd/worker/workertest"
)

// primed is a simulated system whose one project wants postgres, with what its workers log and count.
type primed struct {
	*simulated
	log     *lockedLog
	metrics *prometheus.Registry
}

// lockedLog is a log that is read while it is written.
type lockedLog struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func newPrimed(t *testing.T, change ...func(*rig)) primed {
	t.Helper()
	p := primed{log: &lockedLog{}, metrics: prometheus.NewRegistry()}
	p.simulated = newSimulated(t, eventstest.StartEmbedded(t), workertest.SimConfig{Seed: 1}, append([]func(*rig){func(r *rig) {
		r.cfg.Log, r.cfg.Register = zerolog.New(p.log), p.metrics
	}}, change...)...)
	p.project("p", []string{"postgres"}, nil)
	return p
}

// provide requests a postgres for an agent and gives the image that its container was made from.
func (p primed) provide(name string) (from string) {
	p.t.Helper()
	slug := p.slug(name)
	p.start(slug, "T-1", "p")
	got := p.request(slug)
	require.Equal(p.t, "sim-postgres", got["postgres"].Image, "a primed container names the engine's own image")
	c, err := p.sim.Inspect(context.Background(), "roboco-sandbox-pg-"+slug)
	require.NoError(p.t, err)
	require.Equal(p.t, "sim-postgres", c.Image)
	return p.sim.From(c.Name)
}

// becomes waits until so many images are derived, and gives their tags.
func (p primed) becomes(n int) (tags []string) {
	p.t.Helper()
	p.eventually(soon, func() bool { tags = p.sim.Derived(); return len(tags) == n }, "there are not %d derived images", n)
	return tags
}

// counted reads one counter, by its labels' values in the order of their names.
func (p primed) counted(name string, labels ...string) float64 {
	p.t.Helper()
	families, err := p.metrics.Gather()
	require.NoError(p.t, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var values []string
			for _, l := range m.GetLabel() {
				values = append(values, l.GetValue())
			}
			if strings.Join(values, " ") == strings.Join(labels, " ") {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

func isPrimed(image string) bool { return strings.HasPrefix(image, engines.PrimedName+":pg-") }

// Both images of postgres are primed once, in the background; a start takes the primed one from then on.
func TestStartsFromPrimedImages(t *testing.T) {
	t.Parallel()
	p := newPrimed(t)
	p.worker()
	p.becomes(2)
	p.eventually(soon, func() bool { return p.counted("sandboxd_derivations_total", "postgres", "ok") == 2 }, "the derivations were not counted")
	require.True(t, isPrimed(p.provide("a")))
	require.Equal(t, 1.0, p.counted("sandboxd_starts_total", "postgres", "primed"))
	require.Zero(t, p.counted("sandboxd_starts_total", "postgres", "plain"))

	slug := p.slug("a")
	wide := p.granted(p.ask(slug, nil, map[string][]string{"postgres": {"vector"}})())
	require.Equal(t, "sim-postgres-features", wide["postgres"].Image)
	require.Equal(t, events.Replaced, wide["postgres"].outcome, "the bare image cannot have it")
	require.True(t, isPrimed(p.sim.From("roboco-sandbox-pg-"+slug)))
	wider := p.granted(p.ask(slug, nil, map[string][]string{"postgres": {"citext"}})())
	require.Equal(t, events.Extended, wider["postgres"].outcome, "a primed container of the feature image is one of the feature image")
}

// Where nothing can be derived every start is plain, nobody waits, and the log says why.
func TestWhatCannotBePrimedStartsPlainly(t *testing.T) {
	t.Parallel()
	p := newPrimed(t)
	p.sim.SetUnderivable(true)
	p.worker()
	p.eventually(soon, func() bool { return p.counted("sandboxd_derivations_total", "postgres", "failed") == 2 }, "nothing was tried")
	for _, name := range []string{"a", "b", "c"} { // each asks for another look
		require.Equal(t, "sim-postgres", p.provide(name))
	}
	require.Contains(t, p.log.String(), "image could not be primed; its engine starts plainly")
	require.Contains(t, p.log.String(), "simulated: no shell in the image")
	require.Equal(t, 2.0, p.counted("sandboxd_derivations_total", "postgres", "failed"), "it is not tried again at once")
	require.Equal(t, 3.0, p.counted("sandboxd_starts_total", "postgres", "plain"))
}

// While an image is derived, starts are plain.
func TestNobodyWaitsForADerivation(t *testing.T) {
	t.Parallel()
	p := newPrimed(t)
	p.sim.SetSlow(workertest.OpDerive, time.Hour)
	_, stop := p.worker()
	require.Equal(t, "sim-postgres", p.provide("a"))
	stop()
	require.NotContains(t, p.log.String(), "could not be primed", "to be told to end is no failure")
}

func TestUnprimed(t *testing.T) {
	t.Parallel()
	p := newPrimed(t, func(r *rig) { r.cfg.Unprimed = true })
	p.worker()
	require.Equal(t, "sim-postgres", p.provide("a"))
	require.Equal(t, "sim-postgres", p.provide("b"))
	require.Empty(t, p.sim.Derived())
}

// Another content behind the name leads to another image. The former one goes when no container uses it.
func TestRetaggedBase(t *testing.T) {
	t.Parallel()
	p := newPrimed(t, func(r *rig) { r.cfg.JanitorInterval = 20 * time.Millisecond })
	_, stop := p.worker()
	former := p.becomes(2)
	first := p.provide("a")
	require.Contains(t, former, first)

	p.sim.Retag("sim-postgres")
	p.becomes(3)
	second := p.provide("b")
	require.True(t, isPrimed(second))
	require.NotEqual(t, first, second)
	require.Contains(t, p.sim.Derived(), first, "a container uses it")

	p.end(p.slug("a"))
	require.NotContains(t, p.becomes(2), first)
	stop()
	require.Contains(t, p.log.String(), "its base has changed")
}

// Two workers of one host come to the same images, whoever is first.
func TestTwoPrimers(t *testing.T) {
	t.Parallel()
	p := newPrimed(t)
	p.worker()
	p.worker(func(c *worker.Config) { c.Register = nil })
	p.becomes(2)
	require.True(t, isPrimed(p.provide("a")))
	p.becomes(2)
}

// An image that somebody removes between two looks costs a start nothing but its pace.
func TestPrimedImageRemoved(t *testing.T) {
	t.Parallel()
	p := newPrimed(t, func(r *rig) { r.cfg.JanitorInterval = time.Hour })
	p.worker()
	p.becomes(2)
	require.True(t, isPrimed(p.provide("a")))
	p.end(p.slug("a"))
	p.eventually(soon, func() bool { return p.sim.From("roboco-sandbox-pg-"+p.slug("a")) == "" }, "the first is not gone")
	all, err := p.sim.DerivedImages(t.Context())
	require.NoError(t, err)
	p.sim.SetUnderivable(true)
	for _, i := range all {
		require.NoError(t, p.sim.RemoveDerived(t.Context(), i.ID))
	}
	require.Equal(t, "sim-postgres", p.provide("b"))
}

// frail is an engine on which containers of primed images exit at once.
type frail struct {
	worker.Runtime
	sim    *workertest.Sim
	exited atomic.Int64
}

func (f *frail) Start(ctx context.Context, id string) error {
	err := f.Runtime.Start(ctx, id)
	if c, ierr := f.sim.Inspect(ctx, id); err == nil && ierr == nil && isPrimed(f.sim.From(c.Name)) {
		f.exited.Add(1)
		f.sim.Kill(id, workertest.Exits)
	}
	return err
}

// A primed image that does not start fails one request; the next is served from the plain one.
func TestPrimedImageThatDoesNotStart(t *testing.T) {
	t.Parallel()
	p := newPrimed(t)
	f := &frail{Runtime: p.cfg.Runtime, sim: p.sim}
	p.worker(func(c *worker.Config) { c.Runtime = f })
	p.becomes(2)
	slug := p.slug("a")
	p.start(slug, "T-1", "p")
	require.NotNil(t, p.ask(slug, nil, nil)().Refusal)
	require.EqualValues(t, 1, f.exited.Load())
	require.Equal(t, "sim-postgres", p.provide("b"))
	require.Contains(t, p.log.String(), "a start from a primed image failed")
}
