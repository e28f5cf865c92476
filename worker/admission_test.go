package worker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/worker"
	"github.com/roboco/sandboxd/worker/workertest"
)

const aYear = 365 * 24 * time.Hour // of an operation that hangs

// While every slot and every create is taken by provisions that hang, hits and ends of others are answered.
func TestHitsAndEndsPassHangingCreates(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, addr string) {
		s := newSimulated(t, addr, workertest.SimConfig{Seed: 1}, func(r *rig) { r.cfg.Slots, r.cfg.Creates = 2, 1 })
		s.project("p", []string{"redis"}, nil)
		s.worker()
		for _, a := range []string{"old", "older"} {
			s.start(a, "T-1", "p")
			s.request(a)
		}
		s.quiet()
		s.sim.SetSlow(workertest.OpCreate, aYear)
		ids := map[string]string{}
		for i := range 12 {
			a := fmt.Sprintf("new%d", i)
			s.start(a, "T-1", "p")
			ids[a] = s.requested(a)
		}
		for a, id := range ids {
			s.eventually(soon, func() bool { return len(s.replies(a, id)) > 0 }, "%s is not accepted or queued", a)
		}
		s.eventually(soon, func() bool { return s.creating.Load() == 1 }, "nothing is created")

		hit := s.request("old")
		require.Equal(t, events.Reused, hit["redis"].outcome)
		s.end("old")
		s.eventually(soon, func() bool {
			_, err := s.sim.Inspect(context.Background(), "roboco-sandbox-redis-old")
			return errors.Is(err, engines.ErrNotFound)
		}, "the end was not carried out")
		s.request("older")
		require.EqualValues(t, 1, s.most.Load())

		// Those who wait leave their lines when their work ends.
		for a := range ids {
			s.end(a)
		}
		for a, id := range ids {
			require.Contains(t, []events.State{events.StateStale, events.StateRefused}, s.answer(a, id).State)
		}
		s.quiet()
	})
}

// Who waits for a create is told the place, moves up, keeps the lease all the while, and is refused in the end.
func TestLineOfCreates(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, addr string) {
		s := newSimulated(t, addr, workertest.SimConfig{Seed: 1}, func(r *rig) {
			r.cfg.Creates, r.cfg.QueueTimeout = 1, 5*time.Second
			r.bcfg.Lease, r.bcfg.ClaimIdle = time.Second, 2*time.Second // shorter than the wait
		})
		s.project("p", []string{"redis"}, nil)
		s.worker()
		s.sim.SetSlow(workertest.OpCreate, aYear)
		ids := map[string]string{}
		for i, a := range []string{"a", "b", "c"} {
			s.start(a, "T-1", "p")
			ids[a] = s.requested(a)
			if i == 0 {
				s.eventually(soon, func() bool { return s.creating.Load() == 1 }, "nothing is created")
				continue
			}
			s.standsAt(a, ids[a], i)
		}
		s.end("b")
		s.standsAt("c", ids["c"], 1)
		full := s.answer("c", ids["c"])
		s.isFull(full, "ROBOCO_SANDBOX_CREATES", "1 are created at once", "redis")
		require.Equal(t, "1", s.hash(ids["c"], "tries"), "the lease was lost while it waited")
		require.Equal(t, []int{2, 1}, s.places("c", ids["c"]))
		s.end("a")
		s.quiet()
		require.Empty(t, s.sim.Containers())
	})
}

// No more containers are created at once than may be, and everybody gets theirs.
func TestCreatesAreBounded(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, addr string) {
		s := newSimulated(t, addr, workertest.SimConfig{Seed: 1}, func(r *rig) { r.cfg.Creates = 2 })
		s.project("p", []string{"postgres", "redis", "mongo"}, nil)
		s.worker()
		s.sim.SetSlow(workertest.OpCreate, 20*time.Millisecond)
		ids := map[string]string{}
		for i := range 12 {
			a := fmt.Sprintf("a%d", i)
			s.start(a, "T-1", "p")
			ids[a] = s.requested(a)
		}
		for a, id := range ids {
			require.Len(t, s.granted(s.answer(a, id)), 3)
		}
		require.EqualValues(t, 2, s.most.Load())
	})
}

// Past the room of every worker a request waits in Redis, and is refused when that takes too long.
func TestLineBeforeTheWorkers(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, addr string) {
		s := newSimulated(t, addr, workertest.SimConfig{Seed: 1}, func(r *rig) { r.cfg.Slots, r.cfg.QueueTimeout = 1, 3*time.Second })
		s.project("p", []string{"redis"}, nil)
		s.worker()
		s.sim.SetSlow(workertest.OpCreate, aYear)
		s.start("a", "T-1", "p")
		s.requested("a")
		s.eventually(soon, func() bool { return s.creating.Load() == 1 }, "nothing is created")
		s.start("b", "T-1", "p")
		b := s.requested("b")
		s.standsAt("b", b, 1)
		s.start("c", "T-1", "p")
		c := s.requested("c")
		s.isFull(s.answer("b", b), "ROBOCO_SANDBOX_SLOTS", "no worker had room")
		s.isFull(s.answer("c", c), "ROBOCO_SANDBOX_SLOTS")
		require.Contains(t, s.places("c", c), 2)
		s.sim.SetSlow(workertest.OpCreate, 0)
		s.end("a")
		require.Equal(t, events.Created, s.request("b")["redis"].outcome, "there is room again")
	})
}

// A worker that is about to end hands back at once what stands in its lines; what is being made may finish.
func TestDrainHandsBackWhatWaits(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, addr string) {
		s := newSimulated(t, addr, workertest.SimConfig{Seed: 1}, func(r *rig) { r.cfg.Creates = 1 })
		s.project("p", []string{"redis"}, nil)
		_, stop := s.worker(func(c *worker.Config) { c.Name = "leaving" })
		s.sim.SetSlow(workertest.OpCreate, aYear)
		ids := map[string]string{}
		for i, a := range []string{"a", "b", "c"} {
			s.start(a, "T-1", "p")
			ids[a] = s.requested(a)
			if i == 0 {
				s.eventually(soon, func() bool { return s.creating.Load() == 1 }, "nothing is created")
			} else {
				s.standsAt(a, ids[a], i)
			}
		}
		s.sim.SetSlow(workertest.OpCreate, 0) // what hangs goes on hanging
		left := make(chan struct{})
		go func() { stop(); close(left) }()
		s.worker(func(c *worker.Config) { c.Name = "staying" })
		for _, a := range []string{"b", "c"} {
			require.Equal(t, events.Created, s.granted(s.answer(a, ids[a]))["redis"].outcome)
			require.Equal(t, "1", s.hash(ids[a], "tries"), "to wait in vain is no attempt")
		}
		select {
		case <-left:
			require.Fail(t, "what was being made was given up")
		default:
		}
		s.end("a")
		<-left
		s.quiet()
	})
}

// The memory of the host is asked for before a set is made: past it requests wait, and are refused with the figures.
func TestMemory(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	onBoth(t, func(t *testing.T, addr string) {
		s := newSimulated(t, addr, workertest.SimConfig{Seed: 1, Memory: 1200 * mib}, func(r *rig) {
			r.cfg.QueueTimeout, r.cfg.Memory = 3*time.Second, 512*mib
		})
		s.project("p", []string{"postgres", "redis"}, nil)
		s.worker()
		s.start("a", "T-1", "p")
		s.request("a")
		s.start("b", "T-1", "p")
		b := s.requested("b")
		s.isFull(s.answer("b", b), "needs 1024 MiB", "176 of 1200 MiB are free", "postgres")
		require.Equal(t, []int{1}, s.places("b", b))
		require.Len(t, s.sim.Containers(), 2, "nothing of it was made")

		again := s.requested("b")
		s.standsAt("b", again, 1)
		s.start("c", "T-1", "p")
		c := s.requested("c")
		s.standsAt("c", c, 2)
		s.request("a") // a hit asks for none
		s.end("a")
		s.granted(s.answer("b", again))
		s.isFull(s.answer("c", c), "free")
	})
}

// Many at once do not pass the memory together; with more of it allowed they all fit.
func TestMemoryIsReserved(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	onBoth(t, func(t *testing.T, addr string) {
		for _, total := range []int64{0, 20 * 512 * mib} {
			s := newSimulated(t, addr, workertest.SimConfig{Seed: 1, Memory: 5 * 512 * mib}, func(r *rig) {
				r.cfg.QueueTimeout, r.cfg.Creates, r.cfg.MemoryTotal = 2*time.Second, 20, total
			})
			s.project("p", []string{"postgres", "redis"}, nil)
			_, stop := s.worker()
			s.sim.SetSlow(workertest.OpCreate, 100*time.Millisecond)
			ids := map[string]string{}
			for i := range 10 {
				a := fmt.Sprintf("a%d", i)
				s.start(a, "T-1", "p")
				ids[a] = s.requested(a)
			}
			ok := 0
			for a, id := range ids {
				if p := s.answer(a, id); p.State == events.StateOK {
					ok++
				}
			}
			want := 2
			if total > 0 {
				want = 10
			}
			require.Equal(t, want, ok)
			has, err := s.sim.Capacity(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, want*2*512*mib, has.Committed)
			stop()
		}
	})
}

// What the engine had counted may be old when it is heard: memory whose reservation ended meanwhile, as its container is there,
// is not free.
func TestOldCapacity(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, addr string) {
		s := newSimulated(t, addr, workertest.SimConfig{Seed: 1, Memory: 700 << 20}, func(r *rig) {
			r.cfg.QueueTimeout, r.cfg.Memory = 3*time.Second, 512<<20
		})
		s.project("p", []string{"redis"}, nil)
		s.worker()
		s.start("a", "T-1", "p")
		s.start("b", "T-1", "p")
		looked := make(chan struct{})
		early := func() { <-looked }
		s.early.Store(&early)
		a := s.requested("a")
		s.eventually(soon, func() bool { return s.creating.Load() == 1 }, "nothing is created")
		late := sync.OnceFunc(func() {
			close(looked)
			s.granted(s.answer("a", a))
		})
		s.late.Store(&late)
		s.isFull(s.answer("b", s.requested("b")), "188 of 700 MiB are free")
	})
}

// A host without any sandbox takes one, whatever its limits come to; an engine that does not answer is no engine that is full.
func TestMemoryOverRefusesNobody(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, addr string) {
		s := newSimulated(t, addr, workertest.SimConfig{Seed: 1, Memory: 100 << 20}, func(r *rig) { r.cfg.QueueTimeout = 2 * time.Second })
		s.project("p", []string{"postgres", "redis"}, nil)
		s.worker(func(c *worker.Config) { c.Creates = 2 })
		s.start("a", "T-1", "p")
		down := fmt.Errorf("list: %w", engines.ErrUnavailable)
		s.noCapacity.Store(&down)
		f := s.refused(s.answer("a", s.requested("a")), 8)
		require.True(t, f.Retryable)
		require.Contains(t, f.Message, "container engine does not answer")
		s.noCapacity.Store(nil)
		s.request("a")
		s.start("b", "T-1", "p")
		s.isFull(s.answer("b", s.requested("b")), "0 of 100 MiB are free")
	})
}

// The most sandboxes at once are counted over all workers; whoever has one goes on.
func TestMostSandboxes(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, addr string) {
		s := newSimulated(t, addr, workertest.SimConfig{Seed: 1}, func(r *rig) { r.bcfg.Max = 5 })
		s.project("p", []string{"postgres", "redis"}, nil)
		s.worker()
		s.worker()
		ids := map[string]string{}
		for i := range 20 {
			a := fmt.Sprintf("a%d", i)
			s.start(a, "T-1", "p")
			ids[a] = s.requested(a)
		}
		var has []string
		for a, id := range ids {
			p := s.answer(a, id)
			if p.State == events.StateOK {
				has = append(has, a)
				continue
			}
			s.isFull(p, "5 sandboxes live", "ROBOCO_SANDBOX_MAX")
			ids[a] = ""
		}
		require.Len(t, has, 5)
		s.quiet()
		require.Len(t, s.sim.Containers(), 10)

		first := has[0]
		require.Equal(t, events.Reused, s.request(first)["redis"].outcome)
		wide := s.granted(s.ask(first, nil, map[string][]string{"redis": {"json"}})())
		require.Equal(t, events.Replaced, wide["redis"].outcome, "what lives is replaced, full or not")
		c, err := s.sim.Inspect(t.Context(), "roboco-sandbox-redis-"+first)
		require.NoError(t, err)
		require.True(t, s.sim.Kill(c.ID, workertest.Vanishes))
		require.Equal(t, events.Replaced, s.request(first)["redis"].outcome, "a dead engine of what lives, too")

		for a, id := range ids {
			if id == "" {
				s.end(first)
				require.Equal(t, events.Created, s.request(a)["redis"].outcome, "an end made a place")
				break
			}
		}
	})
}

// An agent that asks without a pause does not push another back.
func TestLineIsFair(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, addr string) {
		s := newSimulated(t, addr, workertest.SimConfig{Seed: 1}, func(r *rig) { r.cfg.Creates = 1 })
		s.project("p", []string{"redis"}, nil)
		s.worker()
		s.sim.SetSlow(workertest.OpCreate, 50*time.Millisecond)
		var over atomic.Bool
		greedy := make(chan int)
		for i := range 3 {
			a := fmt.Sprintf("greedy%d", i)
			go func() {
				n := 0
				for ; !over.Load(); n++ {
					s.start(a, fmt.Sprintf("T-%d", n), "p") // a fresh sandbox each time
					s.ask(a, nil, nil)()
				}
				greedy <- n
			}()
		}
		s.start("modest", "T-1", "p")
		id := s.requested("modest")
		s.granted(s.answer("modest", id))
		over.Store(true)
		total := 0
		for range 3 {
			total += <-greedy
		}
		for _, p := range s.places("modest", id) {
			require.LessOrEqual(t, p, 4, "one run of each agent at most stands before another's")
		}
		t.Logf("the greedy were served %d times", total)
	})
}
