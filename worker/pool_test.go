package worker_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/worker"
	"github.com/roboco/sandboxd/worker/workertest"
)

const poolLabel = "roboco.sandbox.pool"

// pools is a stage whose workers keep ready containers; sizes are by engine.
func pools(t *testing.T, sizes map[string]int, change ...func(*rig)) *stage {
	t.Helper()
	return newStage(t, append([]func(*rig){func(r *rig) {
		r.cfg.Pool, r.cfg.PoolTick, r.cfg.Grace = map[string]worker.PoolSize{}, 20*time.Millisecond, time.Minute
		for engine, n := range sizes {
			r.cfg.Pool[engine] = worker.PoolSize{Floor: n, Ceiling: n}
		}
	}}, change...)...)
}

// idle lists the ready containers of an engine that nobody has been given.
func (s *stage) idle(engine string) (cs []engines.Container) {
	for _, c := range s.sim.Containers() {
		if strings.HasPrefix(c.Name, "roboco-sandbox-pool-") && c.Labels["roboco.sandbox.engine"] == engine {
			cs = append(cs, c)
		}
	}
	return cs
}

// stocked are the IDs in all pools of this cell.
func (s *stage) stocked() (ids []string) {
	keys, err := s.rdb.Keys(context.Background(), "{"+s.cfg.Cell+"}:pool:*").Result()
	require.NoError(s.t, err)
	for _, key := range keys {
		some, err := s.rdb.LRange(context.Background(), key, 0, -1).Result()
		require.NoError(s.t, err)
		ids = append(ids, some...)
	}
	return ids
}

// full waits until so many ready containers of an engine stand in a pool, and no others are there.
func (s *stage) full(engine string, n int) []engines.Container {
	s.t.Helper()
	s.eventually(time.Minute, func() bool {
		in, idle := s.stocked(), s.idle(engine)
		return len(idle) == n && !slices.ContainsFunc(idle, func(c engines.Container) bool { return !slices.Contains(in, c.ID) })
	}, "the pool of %s does not come to hold %d", engine, n)
	return s.idle(engine)
}

// given finds the container that an agent was given, by its name.
func (s *stage) given(slug, engine string) engines.Container {
	s.t.Helper()
	e, _ := s.cfg.Engines.Lookup(engine)
	c, err := s.sim.Inspect(context.Background(), "roboco-sandbox-"+e.Short+"-"+slug)
	require.NoError(s.t, err)
	return c
}

func passwords(cs []engines.Container) (all []string) {
	for _, c := range cs {
		all = append(all, c.Env[engines.EnvPassword])
	}
	return all
}

// What is asked for comes from the pool: a container that was ready, under the agent's name, and the pool is filled again.
// An end takes it away like any other.
func TestPoolServes(t *testing.T) {
	t.Parallel()
	s := pools(t, map[string]int{"postgres": 2, "redis": 1})
	s.project("p", []string{"postgres", "redis", "mongo"}, map[string][]string{"postgres": {"vector"}})
	s.worker()
	before := append(s.full("postgres", 2), s.full("redis", 1)...)
	a := s.slug("a")
	s.start(a, "T-1", "p")
	got := s.request(a)
	for _, engine := range []string{"postgres", "redis"} {
		require.Equal(t, events.Pooled, got[engine].outcome, engine)
		require.Contains(t, passwords(before), got[engine].Password, engine)
		require.Equal(t, s.given(a, engine).Env[engines.EnvPassword], got[engine].Password, engine)
		require.NotEmpty(t, s.given(a, engine).Labels[poolLabel])
	}
	require.Equal(t, []string{"vector"}, got["postgres"].features)
	require.Equal(t, "roboco-sandbox-pg-"+a, got["postgres"].Host)
	require.Equal(t, events.Created, got["mongo"].outcome, "there is no pool of it")
	again := s.request(a)
	require.Equal(t, events.Reused, again["redis"].outcome)
	require.Equal(t, got["redis"].Password, again["redis"].Password)
	s.full("postgres", 2)
	s.full("redis", 1)

	claims, err := s.store.Claims(t.Context(), []string{s.given(a, "redis").ID})
	require.NoError(t, err)
	claim := claims[s.given(a, "redis").ID]
	require.Equal(t, []string{a, "T-1", "p", "lease", "redis"}, []string{claim.Agent, claim.Task, claim.Project, claim.Owner, claim.Engine})
	s.end(a)
	s.eventually(time.Minute, func() bool { return len(s.sim.Containers()) == 3 }, "the end left something")
	s.full("postgres", 2)
	ids, err := s.bus.ClaimedBy(t.Context(), a)
	require.NoError(t, err)
	require.Empty(t, ids)
}

// A pool of fewer features in the same image serves too: the rest is activated.
func TestPoolActivatesTheRest(t *testing.T) {
	t.Parallel()
	s := pools(t, map[string]int{"postgres": 1})
	s.project("p", []string{"postgres"}, map[string][]string{"postgres": {"vector"}})
	s.worker()
	before := s.full("postgres", 1)
	a := s.slug("a")
	s.start(a, "T-1", "p")
	got := s.granted(s.ask(a, nil, map[string][]string{"postgres": {"citext"}})())
	require.Equal(t, events.Pooled, got["postgres"].outcome)
	require.Equal(t, []string{"citext", "vector"}, got["postgres"].features)
	require.Equal(t, passwords(before), []string{got["postgres"].Password})
}

// What the plan does not hold any more goes: of another image, of a project that is no more, of a worker that keeps none.
func TestPoolIsDrained(t *testing.T) {
	t.Parallel()
	s := pools(t, map[string]int{"redis": 2})
	s.project("p", []string{"redis"}, nil)
	_, stop := s.worker()
	e, _ := s.cfg.Engines.Lookup("redis")
	first := s.full("redis", 2)
	s.sim.Retag(e.Bare)
	s.eventually(time.Minute, func() bool {
		return !slices.ContainsFunc(s.idle("redis"), func(c engines.Container) bool { return slices.Contains(passwords(first), c.Env[engines.EnvPassword]) })
	}, "containers of the former image are kept")
	s.full("redis", 2)
	require.NoError(t, s.store.DeleteProject(t.Context(), "p"))
	s.full("redis", 0)
	s.project("p", []string{"redis"}, nil)
	s.full("redis", 2)

	other, stopOther := s.worker(func(cfg *worker.Config) { cfg.Pool = nil; cfg.JanitorInterval = 20 * time.Millisecond })
	require.NotNil(t, other)
	s.eventually(time.Minute, func() bool {
		n, err := s.rdb.ZCard(context.Background(), "{"+s.cfg.Cell+"}:keepers:simulated-host").Result()
		return err == nil && n == 2
	}, "the other worker is not noted")
	stop()
	s.full("redis", 0)
	stopOther()
}

// A project that changes is heard of, not looked for.
func TestPoolHearsOfProjects(t *testing.T) {
	t.Parallel()
	s := pools(t, map[string]int{"postgres": 1}, func(r *rig) { r.cfg.PoolTick = time.Hour })
	s.worker()
	s.project("p", []string{"postgres"}, nil)
	require.NoError(t, s.bus.AnnounceProject(t.Context(), "p"))
	bare := s.full("postgres", 1)[0]
	s.project("p", []string{"postgres"}, map[string][]string{"postgres": {"vector"}})
	require.NoError(t, s.bus.AnnounceProject(t.Context(), "p"))
	s.eventually(time.Minute, func() bool {
		_, err := s.sim.Inspect(context.Background(), bare.ID)
		return errors.Is(err, engines.ErrNotFound)
	}, "the bare one is kept")
	require.True(t, strings.HasSuffix(s.full("postgres", 1)[0].Labels[poolLabel], ":vector"))
}

// The last worker of a host takes its pools down; one that leaves others behind does not.
func TestPoolOutlivesAWorkerNotAll(t *testing.T) {
	t.Parallel()
	s := pools(t, map[string]int{"redis": 2}, func(r *rig) { r.cfg.PoolTick = time.Second }) // a busy machine keeps nobody silent for ten
	s.project("p", []string{"redis"}, nil)
	_, stopOne := s.worker()
	before := passwords(s.full("redis", 2))
	_, stopTwo := s.worker()
	s.eventually(time.Minute, func() bool {
		n, err := s.rdb.ZCard(context.Background(), "{"+s.cfg.Cell+"}:keepers:simulated-host").Result()
		return err == nil && n == 2
	}, "the other worker is not noted")
	stopOne()
	require.ElementsMatch(t, before, passwords(s.full("redis", 2)))
	a := s.slug("a")
	s.start(a, "T-1", "p")
	require.Equal(t, events.Pooled, s.request(a)["redis"].outcome)
	s.full("redis", 2)
	stopTwo()
	require.Len(t, s.sim.Containers(), 1, "the agent's alone is left")
}

// A worker that died without a word leaves ready containers; the next one puts them in again.
func TestPoolIsTakenUpAgain(t *testing.T) {
	t.Parallel()
	s := pools(t, map[string]int{"redis": 2})
	s.project("p", []string{"redis"}, nil)
	s.worker()
	before := passwords(s.full("redis", 2))
	require.NoError(t, s.rdb.FlushAll(t.Context()).Err())
	require.ElementsMatch(t, before, passwords(s.full("redis", 2)))
}

// Nobody is given a container that died while it waited, noticed or not.
func TestDeadInThePool(t *testing.T) {
	t.Parallel()
	s := pools(t, map[string]int{"redis": 2}, func(r *rig) { r.cfg.PoolTick = time.Hour })
	s.project("p", []string{"redis"}, nil)
	s.worker()
	for _, how := range []workertest.Ending{workertest.Exits, workertest.Restarts, workertest.Vanishes} {
		for _, c := range s.full("redis", 2) {
			require.True(t, s.sim.Kill(c.ID, how))
		}
		a := s.slug(strings.ToLower("a" + uuid.NewString()[:6]))
		s.start(a, "T-1", "p")
		got, c := s.request(a)["redis"], s.given(a, "redis")
		require.True(t, c.FirstLife, how)
		require.Equal(t, c.Env[engines.EnvPassword], got.Password)
		s.end(a)
	}
}

// After a loss of all of Redis an agent keeps the container that it claimed: the durable store tells whose it is.
func TestClaimedSurvivesALoss(t *testing.T) {
	t.Parallel()
	s := pools(t, map[string]int{"redis": 1, "postgres": 1}, func(r *rig) { r.cfg.Grace, r.cfg.JanitorInterval = time.Nanosecond, 50*time.Millisecond })
	s.project("p", []string{"redis", "postgres"}, map[string][]string{"postgres": {"vector"}})
	s.worker()
	s.full("redis", 1)
	s.full("postgres", 1)
	a := s.slug("a")
	s.sim.AgentUp(a)
	s.start(a, "T-1", "p")
	got := s.request(a)
	require.Equal(t, events.Pooled, got["redis"].outcome)
	require.NoError(t, s.rdb.FlushAll(t.Context()).Err())
	s.eventually(time.Minute, func() bool {
		r, err := s.bus.Sandbox(context.Background(), a, false)
		return err == nil && len(r.Engines) == 2
	}, "they were not adopted")
	again := s.request(a)
	for _, engine := range []string{"redis", "postgres"} {
		require.Equal(t, events.Reused, again[engine].outcome, engine)
		require.Equal(t, got[engine].Password, again[engine].Password, engine)
	}
	s.end(a)
	s.eventually(time.Minute, func() bool { return len(s.sim.Containers()) == 3 }, "the end left something beside the agent and the pool")
}

// A keeper that saw a container ready before it was claimed, and retires it after Redis has lost the claim, takes it from
// nobody: the durable store has the last word.
func TestRetiredByMistake(t *testing.T) {
	t.Parallel()
	s := pools(t, map[string]int{"redis": 1}, func(r *rig) { r.cfg.Grace, r.cfg.JanitorInterval = time.Nanosecond, 50*time.Millisecond })
	s.project("p", []string{"redis"}, nil)
	s.worker()
	pool := poolOf(s.full("redis", 1)[0])
	a := s.slug("a")
	s.start(a, "T-1", "p")
	got := s.request(a)["redis"]
	require.Equal(t, events.Pooled, got.outcome)
	c := s.given(a, "redis")
	require.NoError(t, s.rdb.FlushAll(t.Context()).Err())
	fate, err := s.bus.Retire(t.Context(), pool, c.ID)
	require.NoError(t, err)
	require.Equal(t, events.FateDead, fate, "Redis knows no better")
	s.eventually(time.Minute, func() bool {
		r, err := s.bus.Sandbox(context.Background(), a, false)
		return err == nil && r.Engines["redis"].ID == c.ID
	}, "it was not adopted")
	require.Equal(t, got.Password, s.request(a)["redis"].Password)
	s.end(a)
	s.eventually(time.Minute, func() bool { return len(s.sim.Containers()) == 1 }, "the end left something beside the pool")
}

// poolOf is the pool that a container was born in.
func poolOf(c engines.Container) events.Pool {
	kind, _, _ := strings.Cut(c.Labels[poolLabel], ":")
	return events.Pool{Host: "simulated-host", Engine: c.Labels["roboco.sandbox.engine"], Make: kind}
}

// A container that has borne another name than those of the pool may have been seen: whatever else is forgotten, it is never
// handed out again.
func TestSeenIsNeverPutInAgain(t *testing.T) {
	t.Parallel()
	s := pools(t, map[string]int{"redis": 1})
	s.project("p", []string{"redis"}, nil)
	s.worker()
	c := s.full("redis", 1)[0]
	require.NoError(t, s.sim.Rename(t.Context(), c.ID, "roboco-sandbox-redis-somebody"))
	require.NoError(t, s.rdb.FlushAll(t.Context()).Err())
	s.eventually(time.Minute, func() bool {
		_, err := s.sim.Inspect(context.Background(), c.ID)
		return errors.Is(err, engines.ErrNotFound)
	}, "it was kept")
	require.NotEqual(t, c.ID, s.full("redis", 1)[0].ID)
}

// A run that dies between a claim and its record leaves nothing: the next one answers, and what was claimed goes or serves.
func TestClaimThatWasCutOff(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"after claim", "before record", "after record"} {
		s := pools(t, map[string]int{"redis": 1}, func(r *rig) { r.cfg.Grace, r.cfg.JanitorInterval = time.Nanosecond, 50*time.Millisecond })
		s.project("p", []string{"redis"}, nil)
		c := &cues{}
		s.with(c)
		s.full("redis", 1)
		a := s.slug("a")
		s.start(a, "T-1", "p")
		c.on(step, func(string) error { return errCut })
		got := s.request(a)
		require.NotEmpty(t, got["redis"].Password, step)
		require.Equal(t, s.given(a, "redis").Env[engines.EnvPassword], got["redis"].Password, step)
		s.quiet()
		s.eventually(time.Minute, func() bool { return len(s.sim.Containers()) == 2 }, "%s: more is left than the agent's and the pool's", step)
		require.NotEqual(t, got["redis"].Password, s.full("redis", 1)[0].Env[engines.EnvPassword])
	}
}

// The pool holds back where memory is short, and gives way to a request that lacks it.
func TestPoolGivesWay(t *testing.T) {
	t.Parallel()
	const each = 512 << 20
	s := pools(t, map[string]int{"redis": 4}, func(r *rig) { r.cfg.MemoryTotal = 6 * each })
	s.project("p", []string{"redis"}, nil)
	s.project("q", []string{"postgres", "mongo"}, nil)
	s.worker()
	s.full("redis", 3) // three engines stay free for a whole sandbox
	for _, a := range []string{s.slug("a"), s.slug("b"), s.slug("c")} {
		s.start(a, "T-1", "q")
		s.request(a)
	}
	require.Len(t, s.sim.Containers(), 6)
	require.Empty(t, s.idle("redis"))
}

// Two hundred claims, two hundred passwords, of the agent and of the administrator alike.
func TestPasswordsOfClaimsAreNeverEqual(t *testing.T) {
	t.Parallel()
	const sets, claims = 8, 200
	s := pools(t, map[string]int{"postgres": sets, "redis": sets, "mongo": sets})
	services := []string{"postgres", "redis", "mongo"}
	s.project("p", services, nil)
	s.worker()
	seen, n := map[string]bool{}, 0
	for n < claims {
		for _, engine := range services {
			s.full(engine, sets)
		}
		waits := map[string]func() events.Reply{}
		for range sets {
			a := s.slug("a" + uuid.NewString()[:6])
			s.start(a, "T-1", "p")
			waits[a] = s.ask(a, nil, nil)
		}
		for a, wait := range waits {
			for engine, got := range s.granted(wait()) {
				require.Equal(t, events.Pooled, got.outcome, engine)
				n++
				env := s.given(a, engine).Env
				require.Equal(t, env[engines.EnvPassword], got.Password)
				for _, name := range []string{engines.EnvPassword, engines.EnvAdminPassword} {
					secret, is := env[name]
					if !is {
						continue // only postgres has an administrator of its own
					}
					require.Len(t, secret, 32)
					require.False(t, seen[secret], "it was given twice")
					seen[secret] = true
				}
			}
			s.end(a)
		}
	}
	require.Len(t, seen, n+n/len(services))
}

// A pool whose list has lapsed is put together again, of the same containers.
func TestPoolThatLapsed(t *testing.T) {
	t.Parallel()
	s := pools(t, map[string]int{"redis": 2})
	s.project("p", []string{"redis"}, nil)
	s.worker()
	before := passwords(s.full("redis", 2))
	keys, err := s.rdb.Keys(t.Context(), "{"+s.cfg.Cell+"}:pool:*").Result()
	require.NoError(t, err)
	require.NoError(t, s.rdb.Del(t.Context(), keys...).Err())
	require.ElementsMatch(t, before, passwords(s.full("redis", 2)))
}
