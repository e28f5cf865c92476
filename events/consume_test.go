package events_test

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/events"
)

// worker is a Consume under way.
type worker struct {
	stop  context.CancelFunc
	ended chan error
}

func (s *scene) consume(b *events.Bus, o events.ConsumeOptions, h events.Handler) worker {
	ctx, cancel := context.WithCancel(s.Context())
	w := worker{stop: cancel, ended: make(chan error, 1)}
	go func() { w.ended <- b.Consume(ctx, o, h) }()
	s.Cleanup(func() { cancel() })
	return w
}

func (s *scene) stopped(w worker) {
	s.Helper()
	w.stop()
	select {
	case err := <-w.ended:
		require.NoError(s, err)
	case <-time.After(20 * time.Second):
		require.FailNow(s, "the consumer does not end")
	}
}

// finishing is a handler that finishes everything and tells of it.
func (s *scene) finishing(b *events.Bus, got chan events.Delivery) events.Handler {
	return func(ctx context.Context, d events.Delivery) {
		_, _ = b.Finish(ctx, d)
		got <- d
	}
}

func (s *scene) arrives(got chan events.Delivery) events.Delivery {
	s.Helper()
	select {
	case d := <-got:
		return d
	case <-time.After(20 * time.Second):
		require.FailNow(s, "nothing arrives")
	}
	return events.Delivery{}
}

func (s *scene) add(fields ...any) string {
	s.Helper()
	id, err := s.rdb.XAdd(s.Context(), &redis.XAddArgs{Stream: s.key("events"), Values: fields}).Result()
	require.NoError(s, err)
	return id
}

func consumeTests() []test {
	return []test{
		{"consume: what cannot be decoded is a dead letter, and the loop goes on", func(s *scene) {
			s.add("nonsense", "1")
			s.add("event", "{")
			s.add("v", "1", "id", "x", "type", "sandbox.requested", "subject", agent, "data", `{"request_id":5}`)
			s.add("type", "work.ended", "id", "x", "subject", "NO SLUG")
			s.publish(events.WorkEnded, events.Ended{})
			got := make(chan events.Delivery, 10)
			w := s.consume(s.bus, events.ConsumeOptions{Name: me, Slots: 2}, s.finishing(s.bus, got))
			require.Equal(s, events.WorkEnded, s.arrives(got).Event.Type)
			s.eventually(func() bool {
				n, err := s.rdb.XLen(s.Context(), s.key("dead")).Result()
				return err == nil && n == 4
			}, "dead letters")
			s.stopped(w)
			require.Empty(s, got)
			s.drained()
		}},
		{"consume: what came by plain XADD has had no effect", func(s *scene) {
			s.engage("container")
			const ce = `{"specversion":"1.0","id":"f-1","type":"work.ended","source":"x","subject":"be-dev-1","data":{"task_id":"T-1"},"more":1}`
			s.add("event", ce)
			s.add("data", ce)
			s.add("id", "f-1", "type", "work.ended", "subject", agent, "data", `{"task_id":"T-1"}`, "ends", "1")
			got := make(chan events.Delivery, 10)
			w := s.consume(s.bus, events.ConsumeOptions{Name: me, Slots: 1}, func(ctx context.Context, d events.Delivery) {
				if d.Foreign {
					_, err := s.bus.Publish(ctx, d.Event)
					require.NoError(s, err)
				}
				_, _ = s.bus.Finish(ctx, d)
				got <- d
			})
			for range 3 {
				d := s.arrives(got)
				require.True(s, d.Foreign)
				require.False(s, d.Ends)
				require.Equal(s, "f-1", d.Event.ID)
				require.Equal(s, agent, d.Event.Subject)
			}
			d := s.arrives(got)
			require.False(s, d.Foreign)
			require.True(s, d.Ends)
			s.stopped(w)
			require.Empty(s, got, "published once")
			s.drained()
		}},
		{"consume: never more handlers than slots", func(s *scene) {
			for range 6 {
				s.publish(events.WorkStarted, events.Started{TaskID: task, Project: proj})
			}
			var now, most atomic.Int32
			var all sync.WaitGroup
			all.Add(6)
			release := make(chan struct{})
			w := s.consume(s.bus, events.ConsumeOptions{Name: me, Slots: 2}, func(ctx context.Context, d events.Delivery) {
				defer all.Done()
				n := now.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				<-release
				now.Add(-1)
				_, _ = s.bus.Finish(ctx, d)
			})
			s.eventually(func() bool { return now.Load() == 2 }, "two handlers")
			p, err := s.rdb.XPending(s.Context(), s.key("events"), "workers").Result()
			require.NoError(s, err)
			require.EqualValues(s, 2, p.Count, "a slot is taken before the stream is read")
			close(release)
			all.Wait()
			require.EqualValues(s, 2, most.Load())
			s.stopped(w)
		}},
		{"consume: a panic leaves the entry, and the others go on", func(s *scene) {
			b := s.with(func(c *events.Config) { c.ClaimIdle, c.Lease = 100*time.Millisecond, 50*time.Millisecond })
			s.publish(events.WorkStarted, events.Started{TaskID: task, Project: proj})
			var first atomic.Bool
			got := make(chan events.Delivery, 10)
			w := s.consume(b, events.ConsumeOptions{Name: me, Slots: 1}, func(ctx context.Context, d events.Delivery) {
				if first.CompareAndSwap(false, true) {
					panic("a bug")
				}
				s.finishing(b, got)(ctx, d)
			})
			s.arrives(got)
			s.stopped(w)
			s.drained()
		}},
		{"consume: what a dead worker held is claimed", func(s *scene) {
			b := s.with(func(c *events.Config) { c.ClaimIdle = 100 * time.Millisecond })
			var ids []string
			for range 15 { // more than one call of XAUTOCLAIM looks at
				ids = append(ids, s.publish(events.WorkStarted, events.Started{TaskID: task, Project: proj}).StreamID)
				s.read("dead")
			}
			got := make(chan events.Delivery, 20)
			w := s.consume(b, events.ConsumeOptions{Name: me, Slots: 3}, s.finishing(b, got))
			seen := map[string]bool{}
			for range ids {
				seen[s.arrives(got).Entry] = true
			}
			require.Len(s, seen, len(ids))
			s.stopped(w)
			s.drained()
		}},
		{"consume: who was parked gets on soon after the lease is released", func(s *scene) {
			s.engage("")
			d := s.request("r-1")
			run := s.begin(d, args("redis"))
			s.publish(events.SandboxRequested, events.Requested{RequestID: "r-2", Gateway: "gw"})
			w := s.consume(s.bus, events.ConsumeOptions{Name: other, Slots: 2}, func(ctx context.Context, d events.Delivery) {
				b, err := s.bus.Begin(ctx, d, owned("redis"))
				if err == nil && b.Verdict == events.Hit {
					_, _ = s.bus.AnswerHit(ctx, d, want("redis"), map[string]string{"redis": b.Record["redis"].ID})
				}
			})
			s.eventually(func() bool {
				all, err := s.bus.Replies(s.Context(), agent, "r-2", "")
				return err == nil && len(all) == 1
			}, "queued")
			s.record(d, run, "redis", "r1", want("redis"))
			require.Equal(s, events.Held, s.settle(d, run.Epoch, nil, want("redis")))
			s.eventually(func() bool { return s.length() == 0 }, "answered")
			require.Contains(s, s.terminal("r-2").Engines, "redis")
			s.stopped(w)
		}},
		{"consume: drain waits, then calls off, then hands back", func(s *scene) {
			s.publish(events.WorkStarted, events.Started{TaskID: task, Project: proj})
			started, calledOff := make(chan struct{}), make(chan struct{})
			w := s.consume(s.bus, events.ConsumeOptions{Name: me, Slots: 2, Drain: 50 * time.Millisecond}, func(ctx context.Context, _ events.Delivery) {
				close(started)
				<-ctx.Done()
				close(calledOff)
			})
			<-started
			s.stopped(w)
			<-calledOff
			got := make(chan events.Delivery, 1)
			w = s.consume(s.bus, events.ConsumeOptions{Name: other, Slots: 2}, s.finishing(s.bus, got))
			s.arrives(got) // at once, though ClaimIdle is 20 s
			s.stopped(w)
			s.drained()
		}},
		{"consume: drain lets a handler finish", func(s *scene) {
			s.publish(events.WorkStarted, events.Started{TaskID: task, Project: proj})
			started, release := make(chan struct{}), make(chan struct{})
			w := s.consume(s.bus, events.ConsumeOptions{Name: me, Slots: 2, Drain: time.Minute}, func(ctx context.Context, d events.Delivery) {
				close(started)
				<-release
				_, _ = s.bus.Finish(ctx, d)
			})
			<-started
			w.stop()
			close(release)
			s.stopped(w)
			s.drained()
		}},
		{"consume: back after Redis forgot everything", func(s *scene) {
			got := make(chan events.Delivery, 10)
			w := s.consume(s.bus, events.ConsumeOptions{Name: me, Slots: 2}, s.finishing(s.bus, got))
			s.publish(events.WorkStarted, events.Started{TaskID: task, Project: proj})
			s.arrives(got)
			keys, _, err := s.rdb.Scan(s.Context(), 0, s.key("*"), 100000).Result()
			require.NoError(s, err)
			require.NoError(s, s.rdb.Del(s.Context(), keys...).Err())
			p := s.publish(events.WorkStarted, events.Started{TaskID: task, Project: proj})
			require.False(s, p.Known)
			require.Equal(s, p.StreamID, s.arrives(got).Entry, "read from the first entry on")
			s.stopped(w)
		}},
		{"sweep: dead consumers that hold nothing go, parked never", func(s *scene) {
			b := s.with(func(c *events.Config) { c.ClaimIdle = time.Millisecond })
			s.publish(events.WorkStarted, events.Started{TaskID: task, Project: proj})
			s.publish(events.WorkEnded, events.Ended{})
			s.read("holds")
			d := s.read("idle")
			s.claim("idle", d.Entry) // the embedded Redis does not see who only reads
			ok, err := s.bus.Finish(s.Context(), d)
			require.NoError(s, err)
			require.True(s, ok)
			s.publish(events.WorkEnded, events.Ended{})
			d = s.read("idle")
			s.claim("parked", d.Entry)
			require.NoError(s, s.rdb.XAck(s.Context(), s.key("events"), "workers", d.Entry).Err())
			s.eventually(func() bool {
				n, err := b.SweepConsumers(s.Context())
				return err == nil && n == 1
			}, "one is swept")
			left, err := s.rdb.XInfoConsumers(s.Context(), s.key("events"), "workers").Result()
			require.NoError(s, err)
			var names []string
			for _, c := range left {
				names = append(names, c.Name)
			}
			require.ElementsMatch(s, []string{"holds", "parked"}, names)
			require.EqualValues(s, 1, left[0].Pending)
		}},
		{"consume: not under the name of what is parked", func(s *scene) {
			for _, name := range []string{"", "parked"} {
				require.Error(s, s.bus.Consume(s.Context(), events.ConsumeOptions{Name: name}, nil))
			}
		}},
		{"gauges", func(s *scene) {
			s.engage("")
			s.provision("r-1")
			s.publish(events.WorkStarted, events.Started{TaskID: task, Project: proj})
			s.read(me)
			s.publish(events.WorkStarted, events.Started{TaskID: task, Project: proj})
			s.eventually(func() bool {
				g, err := s.bus.Gauges(s.Context())
				return err == nil && g.OldestPending > 0 && g.StreamLength == 2 && g.Pending == 1 && g.Sandboxes == 1
			}, "the gauges")
		}},
	}
}
