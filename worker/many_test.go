package worker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/worker"
	"github.com/roboco/sandboxd/worker/workertest"
)

// fairWithin is the factor by which a worker's share of the requests may differ from an equal one.
const fairWithin = 3

// 400 requests of 100 agents, on 1, 2, 4 and 8 workers: each is answered once, nothing is made twice, and the work is shared.
// The embedded Redis is slow and for one process alone: there, a quarter of it for one worker.
func TestManyWorkers(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, addr string) {
		agents, each, workers := 100, 4, []int{1, 2, 4, 8}
		if strings.HasSuffix(t.Name(), "embedded") {
			agents, workers = 25, []int{1}
		}
		for _, n := range workers {
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				s := newSimulated(t, addr, workertest.SimConfig{Seed: uint64(n)}, func(r *rig) { r.cfg.Slots = 8 })
				s.project("p", []string{"postgres", "redis"}, nil)
				for i := range n {
					s.worker(func(c *worker.Config) { c.Name = fmt.Sprintf("w%d", i) })
				}
				if s.tellsIdle() {
					s.eventually(soon, func() bool { return len(s.consumers()) >= n }, "not all workers read")
				}
				ids := map[string]string{}
				for range each {
					for i := range agents {
						a := fmt.Sprintf("a%d", i)
						if len(ids) < agents {
							s.start(a, "T-1", "p")
						}
						ids[s.requested(a)] = a
					}
				}
				s.answeredOnce(ids)
				s.madeOnce(agents * 2)
				s.sharedBy(n, agents*each)
			})
		}
	})
}

// answeredOnce waits until nothing is left to do, and demands one terminal reply of every request.
func (s *simulated) answeredOnce(ids map[string]string) {
	s.t.Helper()
	s.quiet()
	for id, a := range ids {
		terminals := 0
		for _, r := range s.replies(a, id) {
			if r.Terminal() {
				terminals++
				require.Equal(s.t, events.StateOK, r.State, "%+v", r.Refusal)
			}
		}
		require.Equal(s.t, 1, terminals, "terminal replies of %s", id)
	}
}

// madeOnce demands that so many sandbox containers were ever made, each of them recorded with its host.
func (s *simulated) madeOnce(n int) {
	s.t.Helper()
	lives := s.sim.Truth().Lives
	require.Len(s.t, lives, n, "containers that were ever made")
	all, err := s.bus.Sandboxes(context.Background())
	require.NoError(s.t, err)
	recorded := 0
	for _, sb := range all {
		for _, e := range sb.Engines {
			recorded++
			require.Contains(s.t, lives, e.ID)
			require.Equal(s.t, "simulated-host", e.Host)
		}
	}
	require.Equal(s.t, n, recorded)
}

// sharedBy demands a history row of every request, with its host, and a fair share for each of n workers.
func (s *simulated) sharedBy(n, requests int) {
	s.t.Helper()
	s.eventually(soon, func() bool { return len(s.rows()) == requests }, "the history is not whole")
	shares := map[string]int{}
	for _, row := range s.rows() {
		require.Equal(s.t, "simulated-host", row.Host)
		shares[row.Worker]++
	}
	s.t.Logf("shares: %v", shares)
	require.Len(s.t, shares, n)
	for name, share := range shares {
		require.GreaterOrEqual(s.t, share*fairWithin, requests/n, "the share of %s", name)
		require.LessOrEqual(s.t, share, fairWithin*requests/n, "the share of %s", name)
	}
}

// tellsIdle says that Redis knows of consumers that were given nothing yet, and for how long they have been idle: the
// embedded one does not.
func (s *simulated) tellsIdle() bool {
	return s.rdb.ACLWhoAmI(context.Background()).Err() == nil
}

// consumers lists who reads, without those that only hold what waits.
func (s *simulated) consumers() (names []string) {
	s.t.Helper()
	all, err := s.rdb.XInfoConsumers(context.Background(), "{"+s.bcfg.Cell+"}:events", "workers").Result()
	if err != nil {
		return nil
	}
	for _, c := range all {
		if c.Name != "parked" && c.Name != "queued" {
			names = append(names, c.Name)
		}
	}
	return names
}

// A worker that joins while others have their hands full takes its share of what waits already.
func TestWorkerJoins(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, addr string) {
		s := newSimulated(t, addr, workertest.SimConfig{Seed: 1}, func(r *rig) { r.cfg.Slots, r.cfg.Creates = 2, 1 })
		s.project("p", []string{"redis"}, nil)
		s.sim.SetSlow(workertest.OpCreate, 100*time.Millisecond)
		s.worker(func(c *worker.Config) { c.Name = "first" })
		ids := map[string]string{}
		for i := range 40 {
			a := fmt.Sprintf("a%d", i)
			s.start(a, "T-1", "p")
			ids[s.requested(a)] = a
		}
		s.eventually(soon, func() bool { return len(s.rows()) >= 5 }, "the first does not work")
		before := len(s.rows())
		s.worker(func(c *worker.Config) { c.Name = "second" })
		s.answeredOnce(ids)
		s.madeOnce(40)
		s.eventually(soon, func() bool { return len(s.rows()) == 40 }, "the history is not whole")
		second := 0
		for _, row := range s.rows() {
			if row.Worker == "second" {
				second++
			}
		}
		t.Logf("%d were done before the second came, which took %d", before, second)
		require.GreaterOrEqual(t, second*2*fairWithin, 40-before, "the second's share of what was left")
	})
}

// A worker that is told to leave is gone from the group at once; nothing of what it held is lost.
func TestWorkerLeaves(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, addr string) {
		s := newSimulated(t, addr, workertest.SimConfig{Seed: 1}, func(r *rig) { r.cfg.Slots, r.cfg.Creates = 8, 1 })
		s.project("p", []string{"redis"}, nil)
		s.sim.SetSlow(workertest.OpCreate, 50*time.Millisecond)
		_, stop := s.worker(func(c *worker.Config) { c.Name = "leaving" })
		s.worker(func(c *worker.Config) { c.Name = "staying" })
		ids := map[string]string{}
		for i := range 30 {
			a := fmt.Sprintf("a%d", i)
			s.start(a, "T-1", "p")
			ids[s.requested(a)] = a
		}
		s.eventually(soon, func() bool { return len(s.rows()) >= 3 }, "nobody works")
		stop()
		require.Equal(t, []string{"staying"}, s.consumers())
		s.answeredOnce(ids)
		s.madeOnce(30)
	})
}

// What a dead worker held is taken over, and its consumer is cleaned away.
func TestWorkerDies(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, addr string) {
		s := newSimulated(t, addr, workertest.SimConfig{Seed: 1}, func(r *rig) {
			r.cfg.Slots, r.cfg.Creates = 8, 1
			r.cfg.JanitorInterval = 200 * time.Millisecond
			r.bcfg.Lease, r.bcfg.ClaimIdle = time.Second, 1500*time.Millisecond
		})
		s.project("p", []string{"redis"}, nil)
		s.sim.SetSlow(workertest.OpCreate, 50*time.Millisecond)
		p := workertest.NewProcess("dying")
		over := make(chan struct{})
		ctx, end := context.WithCancel(context.Background())
		go func() { defer close(over); _ = s.inProcess(p).Run(ctx) }()
		t.Cleanup(func() { end(); <-over; p.Close() })
		ids := map[string]string{}
		for i := range 20 {
			a := fmt.Sprintf("a%d", i)
			s.start(a, "T-1", "p")
			ids[s.requested(a)] = a
		}
		s.eventually(soon, func() bool { return s.creating.Load() == 1 || len(s.sim.Containers()) > 2 }, "it does not work")
		p.Kill()
		s.worker(func(c *worker.Config) { c.Name = "living" })
		s.answeredOnce(ids)
		if s.tellsIdle() {
			s.eventually(soon, func() bool { c := s.consumers(); return len(c) == 1 && c[0] == "living" }, "the dead one's consumer is still there")
		}
		all, err := s.bus.Sandboxes(t.Context())
		require.NoError(t, err)
		require.Len(t, all, 20)
	})
}

// inProcess is a worker in a process that can be killed.
func (s *simulated) inProcess(p *workertest.Process) *worker.Worker {
	cfg := s.cfg
	opts := &redis.Options{Addr: s.redis}
	cfg.Name, cfg.Bus = p.Name, events.New(p.Attach(redis.NewClient(opts)), p.Attach(redis.NewClient(opts)), s.bcfg)
	cfg.Runtime, cfg.Engines, cfg.Store = p.Runtime(s.sim), workertest.Engines(p.Wire(s.sim)), p.Store(s.store)
	return worker.New(cfg)
}
