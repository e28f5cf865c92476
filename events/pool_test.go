package events_test

import (
	"fmt"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/roboco/sandboxd/events"
)

// reds is the pool of most tests.
func reds() events.Pool { return events.Pool{Host: "h1", Engine: "redis", Make: "m1"} }

// jsons is another one.
func jsons() events.Pool {
	return events.Pool{Host: "h1", Engine: "redis", Make: "m1", Features: []string{"json"}}
}

// stock puts containers into a pool, all of which it must take.
func (s *scene) stock(p events.Pool, ids ...string) {
	s.Helper()
	for _, id := range ids {
		ok, err := s.bus.Stock(s.Context(), p, id)
		require.NoError(s, err)
		require.True(s, ok, "%s is not taken", id)
	}
}

func (s *scene) refuses(p events.Pool, id string) {
	s.Helper()
	ok, err := s.bus.Stock(s.Context(), p, id)
	require.NoError(s, err)
	require.False(s, ok, "%s is taken", id)
}

func (s *scene) stocked(p events.Pool) []string {
	s.Helper()
	ids, err := s.bus.Stocked(s.Context(), p)
	require.NoError(s, err)
	return ids
}

// takes claims a redis from these pools.
func (s *scene) takes(d events.Delivery, epoch string, pools ...events.Pool) (events.Claimed, events.Fencing) {
	s.Helper()
	c, f, err := s.bus.Claim(s.Context(), d, epoch, "redis", pools)
	require.NoError(s, err)
	return c, f
}

func (s *scene) retire(p events.Pool, id string) events.Fate {
	s.Helper()
	f, err := s.bus.Retire(s.Context(), p, id)
	require.NoError(s, err)
	return f
}

func (s *scene) claims(ids ...string) map[string]events.Claim {
	s.Helper()
	c, err := s.bus.Claims(s.Context(), ids)
	require.NoError(s, err)
	return c
}

func (s *scene) claimedBy(slug string) []string {
	s.Helper()
	ids, err := s.bus.ClaimedBy(s.Context(), slug)
	require.NoError(s, err)
	return ids
}

// running is a request of the agent's with a run under way.
func (s *scene) running(id string) (events.Delivery, events.Begun) {
	s.Helper()
	d := s.request(id)
	a := args("redis")
	a.HashOwner = s.state().Owner
	b := s.begin(d, a)
	require.Equal(s, events.Run, b.Verdict)
	return d, b
}

func poolTests() []test {
	return []test{
		{"pool: what is stocked waits once, the oldest first, in a pool of its own kind", func(s *scene) {
			require.Empty(s, s.stocked(reds()))
			s.stock(reds(), "a", "b", "c")
			s.refuses(reds(), "b")
			require.Equal(s, []string{"a", "b", "c"}, s.stocked(reds()), "it keeps its place")
			for _, other := range []events.Pool{
				jsons(),
				{Host: "h2", Engine: "redis", Make: "m1"},
				{Host: "h1", Engine: "mongo", Make: "m1"},
				{Host: "h1", Engine: "redis", Make: "m2"},
				{Host: "h1", Engine: "redis", Make: "m1", Features: []string{"bloom", "json"}},
			} {
				require.Empty(s, s.stocked(other), "%+v", other)
			}
		}},
		{"claim: the oldest of the first pool that has one, until all are empty", func(s *scene) {
			s.engage("")
			d, b := s.running("r-1")
			c, f := s.takes(d, b.Epoch, reds(), jsons())
			require.Equal(s, events.Held, f)
			require.Equal(s, events.Claimed{}, c, "nothing is there")
			s.stock(reds(), "a", "b")
			s.stock(jsons(), "j")
			for _, want := range []struct {
				id   string
				pool events.Pool
			}{{"a", reds()}, {"b", reds()}, {"j", jsons()}} {
				c, f := s.takes(d, b.Epoch, reds(), jsons())
				require.Equal(s, events.Held, f)
				claim := events.Claim{Slug: agent, Engine: "redis", Epoch: b.Epoch, Born: d.Entry, Tenancy: events.Tenancy{Task: task, Project: proj, Owner: cont}}
				require.Equal(s, events.Claimed{ID: want.id, Pool: want.pool, Claim: claim}, c)
				require.Equal(s, map[string]events.Claim{want.id: claim}, s.claims(want.id, "another"))
				require.NotContains(s, s.stocked(want.pool), want.id)
			}
			c, f = s.takes(d, b.Epoch, reds(), jsons())
			require.Equal(s, events.Held, f)
			require.Empty(s, c.ID)
			require.Equal(s, []string{"a", "b", "j"}, s.claimedBy(agent))
			require.Empty(s, s.claimedBy("another"))
			require.Empty(s, s.claims())
		}},
		{"claim: no pools, no container", func(s *scene) {
			s.engage("")
			d, b := s.running("r-1")
			c, f := s.takes(d, b.Epoch)
			require.Equal(s, events.Held, f)
			require.Empty(s, c.ID)
		}},
		{"claim: only under the lease", func(s *scene) {
			s.engage("")
			s.stock(reds(), "a")
			d, b := s.running("r-1")
			for _, epoch := range []string{"", "1"} {
				c, f := s.takes(d, epoch, reds())
				require.Equal(s, events.Fenced, f)
				require.Empty(s, c.ID)
			}
			s.publish(events.WorkEnded, events.Ended{})
			_, f := s.takes(d, b.Epoch, reds())
			require.Equal(s, events.Fenced, f, "its work has ended")
			require.Equal(s, []string{"a"}, s.stocked(reds()))
			require.Empty(s, s.claims("a"))
			require.Empty(s, s.claimedBy(agent))
		}},
		{"claim: what was claimed or retired is passed over", func(s *scene) {
			s.engage("")
			d, b := s.running("r-1")
			s.stock(reds(), "a")
			s.takes(d, b.Epoch, reds())
			require.Equal(s, events.FateDead, s.retire(reds(), "r"))
			require.NoError(s, s.rdb.RPush(s.Context(), s.key("pool:h1:redis:m1:"), "a", "r", "b", "b").Err(), "as no script does")
			c, _ := s.takes(d, b.Epoch, reds())
			require.Equal(s, "b", c.ID)
			require.Empty(s, s.stocked(reds()))
		}},
		{"claim: a call that is sent twice takes one", func(s *scene) {
			s.engage("")
			d, b := s.running("r-1")
			s.stock(reds(), "a", "b")
			s.stock(jsons(), "j")
			first, _ := s.takes(d, b.Epoch, jsons())
			s.calls.AddHook(twice(s.bus.ScriptNames(), "claim"))
			c, f := s.takes(d, b.Epoch, jsons(), reds())
			require.Equal(s, events.Held, f)
			require.Equal(s, "a", c.ID)
			require.Equal(s, reds(), c.Pool)
			require.Equal(s, first.Claim, c.Claim)
			require.Equal(s, []string{"a", "j"}, s.claimedBy(agent))
			require.Equal(s, []string{"b"}, s.stocked(reds()))
		}},
		{"claim: it lives as long as the record is slid", func(s *scene) {
			s.engage("")
			d, b := s.running("r-1")
			s.stock(reds(), "a")
			s.takes(d, b.Epoch, reds())
			keys := []string{s.key("claim:a"), s.key("claims:" + agent)}
			left := func(want time.Duration) {
				s.Helper()
				for _, k := range keys {
					require.InDelta(s, want, s.rdb.PTTL(s.Context(), k).Val(), float64(time.Minute), k)
				}
			}
			left(2 * time.Hour)
			e := entry("a", b)
			e.Pooled = true
			f, err := s.bus.Record(s.Context(), d, b.Epoch, "redis", e, events.Pooled, "", want("redis"))
			require.NoError(s, err)
			require.Equal(s, events.Held, f)
			for _, k := range keys {
				require.NoError(s, s.rdb.PExpire(s.Context(), k, 10*time.Minute).Err())
			}
			_, err = s.bus.Sandbox(s.Context(), agent, true)
			require.NoError(s, err)
			left(2 * time.Hour)
		}},
		{"stock: a pool lapses when nothing was put in for twice a record's life", func(s *scene) {
			s.stock(reds(), "p1")
			keys, err := s.rdb.Keys(s.Context(), s.key("pool:*")).Result()
			require.NoError(s, err)
			require.Len(s, keys, 1)
			left, err := s.rdb.PTTL(s.Context(), keys[0]).Result()
			require.NoError(s, err)
			require.Positive(s, left)
			require.NoError(s, s.rdb.PExpire(s.Context(), keys[0], time.Minute).Err())
			s.stock(reds(), "p2")
			left, err = s.rdb.PTTL(s.Context(), keys[0]).Result()
			require.NoError(s, err)
			require.Greater(s, left, time.Minute)
		}},
		{"stock: what was claimed or retired is refused", func(s *scene) {
			s.engage("")
			d, b := s.running("r-1")
			s.stock(reds(), "a", "b")
			s.takes(d, b.Epoch, reds())
			require.Equal(s, events.FateDead, s.retire(reds(), "b"))
			for _, p := range []events.Pool{reds(), jsons()} {
				s.refuses(p, "a")
				s.refuses(p, "b")
				require.Empty(s, s.stocked(p))
			}
		}},
		{"retire: for ever, unless it was claimed", func(s *scene) {
			s.engage("")
			d, b := s.running("r-1")
			s.stock(reds(), "a", "b", "c")
			c, _ := s.takes(d, b.Epoch, reds())
			require.Equal(s, events.FateClaimed, s.retire(reds(), c.ID))
			require.Equal(s, map[string]events.Claim{c.ID: c.Claim}, s.claims(c.ID), "as it was")
			for range 2 {
				require.Equal(s, events.FateDead, s.retire(reds(), "b"))
				require.Equal(s, map[string]events.Claim{"b": {Retired: true}}, s.claims("b"))
				require.InDelta(s, 2*time.Hour, s.rdb.PTTL(s.Context(), s.key("claim:b")).Val(), float64(time.Minute))
			}
			require.Equal(s, []string{"c"}, s.stocked(reds()))
			require.Equal(s, events.FateDead, s.retire(reds(), "nowhere"), "one that is in no pool")
			require.Equal(s, []string{c.ID}, s.claimedBy(agent))
		}},
		{"claim: many agents at one pool never have the same container", (*scene).manyClaim},
		{"retire: against claims each container has one fate", (*scene).claimsAgainstRetirements},
	}
}

// crowd is so many agents, each with a run under way.
func (s *scene) crowd(n int) (hands []events.Delivery, runs []events.Begun) {
	s.Helper()
	for i := range n {
		d := s.asks(fmt.Sprint("crowd-", i), fmt.Sprint("r-", i))
		b := s.begin(d, args("redis"))
		require.Equal(s, events.Run, b.Verdict)
		hands, runs = append(hands, d), append(runs, b)
	}
	return hands, runs
}

// manyClaim has twenty agents claim side by side, more than there is, while what was claimed already is offered again.
func (s *scene) manyClaim() {
	const agents, each, stocked = 20, 3, 45
	hands, runs := s.crowd(agents)
	for i := range stocked {
		s.stock(reds(), fmt.Sprint("c", i))
	}
	var mu sync.Mutex
	whose := map[string]string{}
	var g errgroup.Group
	for i, d := range hands {
		g.Go(func() error {
			for range each {
				c, f, err := s.bus.Claim(s.Context(), d, runs[i].Epoch, "redis", []events.Pool{jsons(), reds()})
				if err != nil || f != events.Held {
					return fmt.Errorf("claim: %s, %w", f, err)
				}
				if c.ID == "" {
					continue
				}
				if again, err := s.bus.Stock(s.Context(), reds(), c.ID); err != nil || again {
					return fmt.Errorf("%s is stocked again: %t, %w", c.ID, again, err)
				}
				mu.Lock()
				before := whose[c.ID]
				whose[c.ID] = d.Event.Subject
				mu.Unlock()
				if before != "" {
					return fmt.Errorf("%s has %s and so has %s", before, c.ID, d.Event.Subject)
				}
			}
			return nil
		})
	}
	require.NoError(s, g.Wait())
	require.Len(s, whose, stocked, "all were claimed")
	require.Empty(s, s.stocked(reds()))
	for id, slug := range whose {
		require.Equal(s, slug, s.claims(id)[id].Slug)
		require.Contains(s, s.claimedBy(slug), id)
	}
}

// claimsAgainstRetirements has agents claim what is retired at the same time.
func (s *scene) claimsAgainstRetirements() {
	const agents, stocked = 5, 40
	hands, runs := s.crowd(agents)
	var ids []string
	for i := range stocked {
		ids = append(ids, fmt.Sprint("c", i))
	}
	s.stock(reds(), ids...)
	claimed, retired := make([]int, stocked), make([]int, stocked)
	var mu sync.Mutex
	var g errgroup.Group
	for i, d := range hands {
		g.Go(func() error {
			for range stocked + 1 {
				c, f, err := s.bus.Claim(s.Context(), d, runs[i].Epoch, "redis", []events.Pool{reds()})
				if err != nil || f != events.Held || c.ID == "" {
					return err
				}
				var n int
				if _, err := fmt.Sscanf(c.ID, "c%d", &n); err != nil {
					return err
				}
				mu.Lock()
				claimed[n]++
				mu.Unlock()
			}
			return fmt.Errorf("%s has more than there is", d.Event.Subject)
		})
	}
	g.Go(func() error {
		for i := stocked - 1; i >= 0; i-- { // towards those who claim
			f, err := s.bus.Retire(s.Context(), reds(), ids[i])
			if err != nil {
				return err
			}
			if f == events.FateDead {
				retired[i]++
			}
		}
		return nil
	})
	require.NoError(s, g.Wait())
	for i, id := range ids {
		require.Equal(s, 1, claimed[i]+retired[i], "%s was claimed %d times and retired %d times", id, claimed[i], retired[i])
		require.Equal(s, retired[i] == 1, s.claims(id)[id].Retired)
	}
}
