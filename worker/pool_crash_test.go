package worker_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/state"
	"github.com/roboco/sandboxd/worker"
)

// What a keeper that died left half done is not put in, though it answers: it has not all the features of its pool.
func TestHalfDoneIsNotPutIn(t *testing.T) {
	t.Parallel()
	s := pools(t, map[string]int{"redis": 1}, func(r *rig) { r.cfg.Grace = time.Nanosecond })
	s.project("p", []string{"redis"}, map[string][]string{"redis": {"bloom", "json"}})
	_, stop := s.worker()
	whole := s.full("redis", 1)[0]
	s.left(stop)
	e, _ := s.cfg.Engines.Lookup("redis")
	spec := e.Describe(engines.Order{Image: e.Feature, Password: "half"})
	half, err := s.sim.Create(t.Context(), engines.Launch{Spec: spec, Name: "roboco-sandbox-pool-redis-half", Labels: whole.Labels})
	require.NoError(t, err)
	require.NoError(t, s.sim.Start(t.Context(), half))
	c, err := s.sim.Inspect(t.Context(), half)
	require.NoError(t, err)
	s.eventually(time.Minute, func() bool {
		return e.Activate(context.Background(), engines.Access{Addr: c.Addrs[0], Password: "half"}, []string{"json"}) == nil
	}, "it does not start")
	s.worker()
	s.eventually(time.Minute, func() bool { return len(s.idle("redis")) == 1 }, "both are kept")
	require.Equal(t, whole.ID, s.full("redis", 1)[0].ID)
}

// left ends a worker whose pools outlive it, for another worker is on the host, and then that one is gone too.
func (s *stage) left(stop func()) {
	s.t.Helper()
	_, err := s.bus.Keep(s.t.Context(), "simulated-host", "another", time.Hour)
	require.NoError(s.t, err)
	stop()
	_, err = s.bus.Unkeep(s.t.Context(), "simulated-host", "another")
	require.NoError(s.t, err)
}

// watchedStore counts the looks at claims.
type watchedStore struct {
	worker.Store
	looks atomic.Int64
}

func (w *watchedStore) Claims(ctx context.Context, ids []string) (map[string]state.Claim, error) {
	defer w.looks.Add(1)
	return w.Store.Claims(ctx, ids)
}

// A keeper looked, nobody had claimed it; then it was claimed, and Redis lost that: the durable store has the last word, when
// Redis knows no better.
func TestRetireAsksTheDurableStore(t *testing.T) {
	t.Parallel()
	watched := &watchedStore{}
	s := pools(t, map[string]int{"redis": 1}, func(r *rig) {
		watched.Store = r.store
		r.cfg.Store = watched
	})
	s.project("p", []string{"redis"}, nil)
	_, stop := s.worker()
	box := s.full("redis", 1)[0]
	s.left(stop)
	a := s.slug("a")
	s.start(a, "T-1", "p")
	var seen atomic.Int64 // looks when the container was about to be retired
	c := (&cues{}).on("before pool", func(string) error {
		seen.Store(watched.looks.Load())
		return s.store.RecordClaim(context.Background(), state.Claim{
			ContainerID: box.ID, Agent: a, Engine: "redis", Task: "T-1", Project: "p", Owner: events.OwnerLease, Born: "1-0", Epoch: "1",
		})
	})
	require.NoError(t, s.store.DeleteProject(t.Context(), "p")) // what is ready is wanted no more, so it is not put in, but retired
	s.with(c)
	gone := func() bool { _, err := s.sim.Inspect(context.Background(), box.ID); return err != nil }
	s.eventually(time.Minute, func() bool { return c.met() && watched.looks.Load() > seen.Load()+4 || gone() }, "nobody looks")
	require.True(t, c.met())
	require.False(t, gone(), "it was taken from whom it was claimed for")
}

// A mark in Redis that a container was retired does not take it from the agent that the durable store names, though no keeper looks.
func TestRetiredMarkIsNotTrusted(t *testing.T) {
	t.Parallel()
	s := pools(t, map[string]int{"redis": 1}, func(r *rig) { r.cfg.Grace, r.cfg.JanitorInterval = time.Nanosecond, 50*time.Millisecond })
	s.project("p", []string{"redis"}, nil)
	_, stop := s.worker()
	pool := poolOf(s.full("redis", 1)[0])
	a := s.slug("a")
	s.start(a, "T-1", "p")
	got := s.request(a)["redis"]
	require.Equal(t, events.Pooled, got.outcome)
	stop()
	require.NoError(t, s.rdb.FlushAll(t.Context()).Err())
	keeper, err := s.bus.Keep(t.Context(), "simulated-host", "another", time.Hour) // and it does nothing
	require.NoError(t, err)
	require.True(t, keeper)
	fate, err := s.bus.Retire(t.Context(), pool, s.given(a, "redis").ID)
	require.NoError(t, err)
	require.Equal(t, events.FateDead, fate)
	s.worker()
	s.eventually(time.Minute, func() bool {
		r, err := s.bus.Sandbox(context.Background(), a, false)
		return err == nil && r.Engines["redis"].Name != ""
	}, "it was not adopted")
	require.Equal(t, got.Password, s.request(a)["redis"].Password)
}

// Whoever asks before a janitor has adopted what the agent claimed, after a loss of all of Redis, is given it as it is.
func TestClaimedIsTakenOverAfterALoss(t *testing.T) {
	t.Parallel()
	s := pools(t, map[string]int{"redis": 1, "postgres": 1}, func(r *rig) { r.cfg.JanitorInterval = time.Hour })
	s.project("p", []string{"redis", "postgres"}, map[string][]string{"postgres": {"vector"}})
	s.worker()
	s.full("redis", 1)
	s.full("postgres", 1)
	a := s.slug("a")
	s.start(a, "T-1", "p")
	got := s.request(a)
	require.Equal(t, events.Pooled, got["redis"].outcome)
	require.NoError(t, s.rdb.FlushAll(t.Context()).Err())
	again := s.request(a)
	for _, engine := range []string{"redis", "postgres"} {
		require.Equal(t, got[engine].Password, again[engine].Password, engine)
		require.Equal(t, got[engine].features, again[engine].features, engine)
	}
	ids, err := s.bus.ClaimedBy(t.Context(), a)
	require.NoError(t, err)
	require.Len(t, ids, 2, "Redis knows of the claims again")
	s.end(a)
	s.eventually(time.Minute, func() bool { return len(s.sim.Containers()) == 2 }, "the end left something beside the pool")
}
