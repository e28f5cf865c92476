package worker_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/state"
	"github.com/roboco/sandboxd/worker"
	"github.com/roboco/sandboxd/worker/workertest"
)

// What Redis loses of claims. The pools here are tended only when something happens to them, so that what was put into one
// stays there.

func lonePool(r *rig) { r.cfg.PoolTick, r.cfg.Grace = time.Hour, time.Nanosecond }

// A request that comes right after a loss of all of Redis finds its container by name, and need not wait for a janitor: its own
// lease is no hindrance.
func TestClaimedIsFoundByItsNextRun(t *testing.T) {
	t.Parallel()
	s := pools(t, map[string]int{"redis": 1}, lonePool)
	s.project("p", []string{"redis"}, nil)
	s.worker()
	s.full("redis", 1)
	a := s.slug("a")
	s.sim.AgentUp(a)
	s.start(a, "T-1", "p")
	before := s.request(a)["redis"]
	require.Equal(t, events.Pooled, before.outcome)
	c := s.given(a, "redis")
	require.NoError(t, s.rdb.FlushAll(t.Context()).Err())
	after := s.request(a)["redis"]
	require.Equal(t, before.Password, after.Password)
	require.Equal(t, c.ID, s.given(a, "redis").ID)
}

// inUse is a container that an agent claimed and works with, which a loss of Redis has brought into its pool again.
func (s *stage) inUse() (a string, c engines.Container, password string) {
	s.t.Helper()
	s.project("p", []string{"redis"}, nil)
	pool := poolOf(s.full("redis", 1)[0])
	a = s.slug("a")
	s.sim.AgentUp(a)
	s.start(a, "T-1", "p")
	got := s.request(a)["redis"]
	require.Equal(s.t, events.Pooled, got.outcome)
	s.full("redis", 1)
	require.NoError(s.t, s.rdb.FlushAll(context.Background()).Err())
	c = s.given(a, "redis")
	in, err := s.bus.Stock(context.Background(), pool, c.ID)
	require.NoError(s.t, err)
	require.True(s.t, in, "Redis knows no better")
	return a, c, got.Password
}

// A keeper that looked before a claim, and puts the container in after a loss of Redis, gives it to nobody else: the durable
// store has the last word at the claim too.
func TestStockedByMistake(t *testing.T) {
	t.Parallel()
	s := pools(t, map[string]int{"redis": 1}, lonePool)
	s.project("p", []string{"redis"}, nil)
	s.worker()
	a, c, password := s.inUse()
	b := s.slug("b")
	s.start(b, "T-2", "p")
	require.NotEqual(t, password, s.request(b)["redis"].Password, "it was given to another")
	require.Equal(t, password, s.request(a)["redis"].Password)
	require.Equal(t, c.ID, s.given(a, "redis").ID)
}

// A run that took such a container and died does not take it from who has it either.
func TestClaimedByMistakeAndLeft(t *testing.T) {
	t.Parallel()
	s := pools(t, map[string]int{"redis": 1}, lonePool)
	s.project("p", []string{"redis"}, nil)
	c := &cues{}
	s.with(c)
	a, box, password := s.inUse()
	b := s.slug("b")
	s.start(b, "T-2", "p")
	c.on("after claim", func(string) error { return errCut })
	require.NotEqual(t, password, s.request(b)["redis"].Password, "it was given to another")
	claims, err := s.bus.Claims(t.Context(), []string{box.ID})
	require.NoError(t, err)
	require.Equal(t, b, claims[box.ID].Slug, "the run that died has claimed it, as far as Redis knows")
	for range 3 { // one learns who has it, another one adopts it
		require.NoError(t, s.pass(nil))
	}
	require.Equal(t, password, s.request(a)["redis"].Password)
	require.Equal(t, box.ID, s.given(a, "redis").ID)
}

// dyingStore ends its process before a claim is stored.
type dyingStore struct {
	worker.Store
	die func()
}

func (s *dyingStore) RecordClaim(context.Context, state.Claim) error {
	s.die()
	return errCut
}

// A run that died after it had claimed a container and given it its name, and before the durable store knew, is followed by one
// that takes the container over: then the store knows, and a loss of Redis costs nothing.
func TestTakenOverClaimIsStored(t *testing.T) {
	t.Parallel()
	s := pools(t, map[string]int{"redis": 1}, lonePool)
	s.project("p", []string{"redis"}, nil)
	a := s.slug("a")
	s.start(a, "T-1", "p")
	p := workertest.NewProcess("dying")
	t.Cleanup(p.Close)
	die := func() {
		s.eventually(time.Minute, func() bool {
			_, err := s.sim.Inspect(context.Background(), "roboco-sandbox-redis-"+a)
			return err == nil
		}, "it was not given its name")
		p.Kill()
	}
	cfg := s.cfg
	cfg.Name = uuid.NewString()
	cfg.Runtime, cfg.Engines, cfg.Store = p.Runtime(s.sim), workertest.Engines(p.Wire(s.sim)), &dyingStore{p.Store(s.store), die}
	open := func() redis.UniversalClient { return p.Attach(redis.NewClient(&redis.Options{Addr: s.redis})) }
	cfg.Bus = events.New(open(), open(), s.bcfg)
	dying, ended := worker.New(cfg), make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { ended <- dying.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	s.full("redis", 1)

	wait := s.ask(a, nil, nil)
	<-p.Killed()
	left := s.given(a, "redis")
	s.worker()
	require.Equal(t, left.Env[engines.EnvPassword], s.granted(wait())["redis"].Password, "taken over")
	claims, err := s.store.Claims(t.Context(), []string{left.ID})
	require.NoError(t, err)
	require.Equal(t, a, claims[left.ID].Agent, "the durable store does not know of the claim")
}

// What is somebody's by the durable store alone does not stay in a pool, and is not taken for retired.
func TestStockedByMistakeIsStruck(t *testing.T) {
	t.Parallel()
	s := pools(t, map[string]int{"redis": 1}, lonePool)
	s.project("p", []string{"redis"}, nil)
	_, stop := s.worker()
	a, c, password := s.inUse()
	s.worker(func(cfg *worker.Config) { cfg.PoolTick = 20 * time.Millisecond })
	stop()
	s.eventually(time.Minute, func() bool { return !slices.Contains(s.stocked(), c.ID) }, "it stays in its pool")
	s.eventually(time.Minute, func() bool {
		claims, err := s.bus.Claims(context.Background(), []string{c.ID})
		return err == nil && !claims[c.ID].Retired
	}, "it is taken for retired")
	require.Equal(t, password, s.request(a)["redis"].Password)
}
