package worker_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/state"
	"github.com/roboco/sandboxd/worker"
)

// images notes which images are asked for.
type images struct {
	mu  sync.Mutex
	all []string
}

func (x *images) note(image string) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.all = append(x.all, image)
	return nil
}

// asked gives them in turn.
func (x *images) asked() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return append([]string{}, x.all...)
}

// ahead starts a worker that meets cues, with changes to its configuration.
func (s *stage) ahead(c *cues, change ...func(*worker.Config)) {
	s.t.Helper()
	s.worker(append(change, func(cfg *worker.Config) { cfg.Runtime = &cuedRuntime{s.sim, c} })...)
}

func (s *stage) image(engine string, features ...string) string {
	e, ok := s.cfg.Engines.Lookup(engine)
	require.True(s.t, ok)
	return e.Image(features)
}

// Images are asked for at the start, when a project changes, and at a tick where nobody said so; those that projects need,
// and no others.
func TestImagesAhead(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var seen images
	s.project("p", []string{"redis", "postgres"}, nil)
	s.project("q", []string{"postgres"}, map[string][]string{"redis": {"json"}})
	s.project("r", nil, map[string][]string{"mongo": nil})
	s.ahead((&cues{}).always("before image", seen.note))
	first := []string{s.image("postgres"), s.image("redis")}
	s.eventually(soon, func() bool { return len(seen.asked()) >= 2 }, "nothing is asked for at the start")
	require.Equal(t, first, seen.asked()[:2])

	s.project("q", []string{"mongo", "postgres"}, map[string][]string{"postgres": {"vector"}})
	require.NoError(t, s.bus.AnnounceProject(t.Context(), "q"))
	want := []string{s.image("postgres"), s.image("postgres", "vector"), s.image("redis"), s.image("mongo")}
	s.eventually(soon, func() bool { return strings.HasSuffix(list(seen.asked()), list(want)) }, "a change is not heeded")

	var late images
	s.ahead((&cues{}).always("before image", late.note), func(cfg *worker.Config) { cfg.JanitorInterval = 10 * time.Millisecond })
	s.eventually(soon, func() bool { return len(late.asked()) >= 8 }, "ticks do nothing")
	s.project("r", []string{"redis"}, map[string][]string{"redis": {"json"}})
	s.eventually(soon, func() bool { return strings.Contains(list(late.asked()), s.image("redis", "json")) }, "a tick does not notice a change")
}

func list(images []string) string { return strings.Join(images, " ") }

// An image that cannot be had is told once, is left alone for a while, and keeps no other image and no request back.
func TestImagesThatCannotBeHad(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.sim.AgentUp(s.slug("a"))
	a := s.atWork("redis", "mongo")
	var seen images
	bad := &engines.PullError{Image: s.image("redis"), Retryable: true, Cause: errors.New("the registry is on fire")}
	c := (&cues{}).always("before image", func(image string) error {
		_ = seen.note(image)
		if image == s.image("redis") && len(seen.asked()) < 10 {
			return bad
		}
		return nil
	})
	var log lines
	s.ahead(c, func(cfg *worker.Config) {
		cfg.JanitorInterval, cfg.Log = 5*time.Millisecond, zerolog.New(&log).Level(zerolog.WarnLevel)
	})
	s.eventually(soon, func() bool { return len(seen.asked()) >= 20 }, "ticks do nothing")
	require.Equal(t, 1, strings.Count(list(seen.asked()), s.image("redis")), "it is left alone")
	require.Equal(t, 1, strings.Count(log.String(), "on fire"), log.String())
	require.Len(t, s.request(a), 2, "a request tries for itself")
}

// While an image is gotten ahead, requests go on; and none is begun while a request gets one.
func TestImagesAheadGiveWay(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.sim.AgentUp(s.slug("a"))
	a := s.atWork("redis")
	entered, leave, listed := make(chan struct{}), make(chan struct{}), make(chan struct{}, 100)
	var seen images
	c := (&cues{}).on("before image", func(string) error { // ahead of the request
		close(entered)
		<-leave
		return nil
	})
	s.ahead(c, func(cfg *worker.Config) { cfg.Store = listedStore{cfg.Store, listed} })
	<-entered
	require.Contains(t, s.request(a), "redis", "it does not wait for what is gotten ahead")

	b := s.slug("b")
	s.start(b, "T-1", "p")
	pulling, goOn := make(chan struct{}), make(chan struct{})
	c.on("before image", func(string) error { // of the request
		close(pulling)
		<-goOn
		return seen.note("request")
	})
	wait := s.ask(b, nil, nil)
	<-pulling
	c.always("before image", seen.note)
	s.project("q", []string{"mongo"}, nil)
	require.NoError(t, s.bus.AnnounceProject(t.Context(), "q"))
	for len(listed) > 0 {
		<-listed
	}
	close(leave)
	<-listed // it is about to get the next image
	require.Never(t, func() bool { return len(seen.asked()) > 0 }, 50*time.Millisecond, time.Millisecond, "it does not give way")
	close(goOn)
	s.granted(wait())
	s.eventually(soon, func() bool { return strings.Contains(list(seen.asked()), s.image("mongo")) }, "nothing is gotten afterwards")
	require.Equal(t, "request", seen.asked()[0], "it gave way")
}

// listedStore tells when the projects were listed.
type listedStore struct {
	worker.Store
	told chan<- struct{}
}

// Projects lists them.
func (s listedStore) Projects(ctx context.Context) ([]state.Project, error) {
	defer func() { s.told <- struct{}{} }()
	return s.Store.Projects(ctx)
}
