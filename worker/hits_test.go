package worker_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/worker/workertest"
)

// hits are an agent with a redis, and a worker whose looks at that container are counted.
type hits struct {
	*stage
	*cues
	slug  string
	box   engines.Container
	looks atomic.Int64
	first map[string]got
	feed  chan struct{} // the worker's feed stands
}

// newHits makes the sandbox with a worker that leaves, then starts the one that meets cues.
func newHits(t *testing.T, c *cues) *hits {
	t.Helper()
	h := &hits{stage: newStage(t), cues: c, feed: make(chan struct{})}
	_, stop := h.with(nil)
	h.slug = h.atWork("redis")
	h.first = h.request(h.slug)
	stop()
	h.box = h.stage.box(h.slug, "redis")
	c.always("before inspect", func(id string) error {
		if id == h.box.ID {
			h.looks.Add(1)
		}
		return nil
	})
	c.on("feed stands", func(string) error { close(h.feed); return nil })
	return h
}

// Many hits of one container are answered with few looks at it.
func TestHitsShareLooks(t *testing.T) {
	t.Parallel()
	h := newHits(t, &cues{})
	const many = 40
	var waits []func() events.Reply
	for range many {
		waits = append(waits, h.ask(h.slug, nil, nil))
	}
	h.with(h.cues)
	for _, wait := range waits {
		require.Equal(t, h.first["redis"].Password, h.granted(wait())["redis"].Password)
	}
	require.Less(t, h.looks.Load(), int64(many/2))
}

// A hit where nothing has changed is answered without a begin, and one whose container died is begun.
func TestHitAtAGlance(t *testing.T) {
	t.Parallel()
	var begins atomic.Int64
	h := newHits(t, (&cues{}).always("before begin", func(string) error { begins.Add(1); return nil }))
	h.with(h.cues)
	for range 3 {
		require.Equal(t, h.first["redis"].Password, h.request(h.slug)["redis"].Password)
	}
	require.Zero(t, begins.Load())
	require.True(t, h.sim.Kill(h.box.ID, workertest.Exits))
	require.NotEqual(t, h.first["redis"].Password, h.request(h.slug)["redis"].Password)
	require.Positive(t, begins.Load())
}

// While the feed is down every hit looks for itself.
func TestHitsLookWithoutTheFeed(t *testing.T) {
	t.Parallel()
	h := newHits(t, (&cues{}).always("before feed", func(string) error { return errCut }))
	h.with(h.cues)
	h.request(h.slug) // by now the janitor has had its look
	for range 20 {
		before := h.looks.Load()
		require.Equal(t, h.first["redis"].Password, h.request(h.slug)["redis"].Password)
		require.Greater(t, h.looks.Load(), before)
	}
}

// What the feed tells of counts at once, however young the last look is: here the container ends between the look of one hit
// and the next, which comes before its time is over.
func TestHitNoticesWhatTheFeedTells(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]func(*hits) bool{
		"exits":    func(h *hits) bool { return h.sim.Kill(h.box.ID, workertest.Exits) },
		"restarts": func(h *hits) bool { return h.sim.Kill(h.box.ID, workertest.Restarts) },
		"paused":   func(h *hits) bool { return h.sim.Pause(h.box.ID, true) },
	} {
		h := newHits(t, &cues{})
		h.with(h.cues)
		<-h.feed
		h.request(h.slug)
		heard := make(chan struct{})
		h.on("heard", func(string) error { close(heard); return nil })
		require.True(t, ends(h), name)
		<-heard
		now := h.request(h.slug)
		require.NotEqual(t, h.first["redis"].Password, now["redis"].Password, name)
		require.Equal(t, events.Replaced, now["redis"].outcome, name)
		h.eventually(time.Minute, func() bool { return len(h.boxes(h.slug)) == 1 }, "%s: the former one is left", name)
	}
}

// A pause of the agent's own container is no death: its sandbox stays.
func TestPausedAgentLives(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.with(nil)
	a := s.agentAtWork()
	first := s.request(a)
	for _, c := range s.sim.Containers() {
		if c.Name == "roboco-agent-"+a {
			require.True(t, s.sim.Pause(c.ID, true))
		}
	}
	require.NoError(t, s.pass(nil))
	require.Equal(t, first["redis"].Password, s.request(a)["redis"].Password)
}
