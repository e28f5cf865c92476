package events_test

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/events"
)

// asks starts an agent's work and reads its request.
func (s *scene) asks(slug, id string) events.Delivery {
	s.Helper()
	for _, e := range []events.Event{
		s.event(events.WorkStarted, events.Started{TaskID: task, Project: proj}),
		s.event(events.SandboxRequested, events.Requested{RequestID: id, Role: "developer", Gateway: "gw"}),
	} {
		e.Subject = slug
		_, err := s.bus.Publish(s.Context(), e)
		require.NoError(s, err)
	}
	s.finishNext()
	return s.read(me)
}

// opens begins a request on a bus.
func (s *scene) opens(b *events.Bus, d events.Delivery, a events.BeginArgs) events.Begun {
	s.Helper()
	begun, err := b.Begin(s.Context(), d, a)
	require.NoError(s, err)
	return begun
}

// places lists who holds a sandbox.
func (s *scene) places() []string {
	s.Helper()
	all, err := s.rdb.ZRange(s.Context(), s.key("live"), 0, -1).Result()
	require.NoError(s, err)
	return all
}

func liveTests() []test {
	return []test{
		{"live: past the most sandboxes at once a request is refused, and nothing else", func(s *scene) {
			b := s.with(func(c *events.Config) { c.Max = 1 })
			one := s.asks("a1", "r-1")
			run := s.opens(b, one, args("redis"))
			require.Equal(s, events.Run, run.Verdict)

			two := s.asks("a2", "r-2")
			full := s.opens(b, two, args("redis"))
			require.Equal(s, events.Full, full.Verdict, "a lease takes a place")
			require.EqualValues(s, 1, full.Live)
			all, err := s.bus.Replies(s.Context(), "a2", "r-2", "")
			require.NoError(s, err)
			require.Empty(s, all, "it was not accepted")
			mine, err := b.Refuse(s.Context(), two, events.StateFailed, events.Refusal{Guard: 8, Message: "full", Remediate: "later", Retryable: true}, task)
			require.NoError(s, err)
			require.True(s, mine)

			again := args("redis")
			again.HashOwner, again.Epoch, again.Gone, again.NoRoom = cont, run.Epoch, []string{"x"}, true
			run = s.opens(b, one, again)
			require.Equal(s, events.Run, run.Verdict, "a run that begins again keeps its place")
			require.Equal(s, events.Held, s.record(one, run, "redis", "r1", want("redis")))
			require.Equal(s, events.Held, s.settle(one, run.Epoch, nil, want("redis")))
			require.Equal(s, []string{"a1"}, s.places(), "a record takes a place")

			hit := s.asks("a1", "r-3")
			require.Equal(s, events.Hit, s.opens(b, hit, owned("redis")).Verdict)
			more := s.asks("a1", "r-4")
			require.Equal(s, events.Run, s.opens(b, more, owned("redis", "postgres")).Verdict, "what is there in part is completed")
		}},
		{"live: an end, a failure and an expiry each free a place", func(s *scene) {
			b := s.with(func(c *events.Config) { c.Max, c.Lease, c.TTL = 1, time.Second, time.Second })
			d := s.asks("a1", "r-1")
			run := s.opens(b, d, args("redis"))
			require.Equal(s, events.Run, run.Verdict)
			ended := s.event(events.WorkEnded, events.Ended{})
			ended.Subject = "a1"
			_, err := b.Publish(s.Context(), ended)
			require.NoError(s, err)
			require.Empty(s, s.places(), "an end")
			s.finishNext()

			d = s.asks("a2", "r-2")
			run = s.opens(b, d, args("redis"))
			require.Equal(s, events.Run, run.Verdict)
			f, err := b.Settle(s.Context(), d, run.Epoch, &events.Refusal{Guard: 8, Message: "m", Remediate: "r"}, want("redis"))
			require.NoError(s, err)
			require.Equal(s, events.Held, f)
			require.Empty(s, s.places(), "a failure that left nothing")

			d = s.asks("a3", "r-3")
			require.Equal(s, events.Run, s.opens(b, d, args("redis")).Verdict)
			d = s.asks("a4", "r-4")
			s.eventually(func() bool { return s.opens(b, d, args("redis")).Verdict == events.Run }, "a lease that lapsed")
		}},
		{"live: a flush loses the count, and adoption brings it back", func(s *scene) {
			s.engage("")
			first := s.provision("r-1")
			require.Equal(s, []string{agent}, s.places())
			require.NoError(s, s.rdb.Del(s.Context(), s.key("live"), s.key("record:"+agent), s.key("agent:"+agent), s.key("fate:"+agent)).Err())
			found := events.Found{Slug: agent, Engine: "redis", ID: "r1", Epoch: first.Epoch, Born: first.Born, Tenancy: events.Tenancy{Task: task, Project: proj, Owner: cont}, FirstLife: true}
			fate, err := s.bus.Adopt(s.Context(), found, "", events.Present{Task: task, Project: proj, Owner: cont}, entry("r1", first))
			require.NoError(s, err)
			require.Equal(s, events.FateAdopted, fate)
			require.Equal(s, []string{agent}, s.places())
		}},
		{"line: without room a request waits in the stream, told its place, until it is refused", func(s *scene) {
			b := s.with(func(c *events.Config) { c.Patience, c.Line = 300*time.Millisecond, 20*time.Millisecond })
			none := args("redis")
			none.NoRoom, none.Ahead = true, 2
			one, two := s.asks("a1", "r-1"), s.asks("a2", "r-2")
			require.Equal(s, events.Busy, s.opens(b, one, none).Verdict)
			require.Equal(s, "queued", s.holder(one.Entry))
			require.Equal(s, events.Busy, s.opens(b, two, none).Verdict)
			require.Equal(s, 3, s.place("a1", "r-1"))
			require.Equal(s, 4, s.place("a2", "r-2"))

			s.claim(me, one.Entry)
			none.NoRoom = false
			run := s.opens(b, one, none)
			require.Equal(s, events.Run, run.Verdict)
			none.NoRoom, none.Ahead = true, 0
			s.claim(me, two.Entry)
			require.Equal(s, events.Busy, s.opens(b, two, none).Verdict)
			require.Equal(s, 1, s.place("a2", "r-2"))
			var over events.Begun
			s.eventually(func() bool {
				s.claim(me, two.Entry)
				over = s.opens(b, two, none)
				return over.Verdict == events.Waited
			}, "nobody waits for ever")
			require.Greater(s, over.Waited, 300*time.Millisecond)
			s.claim(me, two.Entry)
			none.NoRoom = false
			over = s.opens(b, two, none)
			require.Equal(s, events.Run, over.Verdict, "room is room, however late")
			require.Greater(s, over.Waited, 300*time.Millisecond)
		}},
		{"give up: a run that made nothing goes back at once, and does not count", func(s *scene) {
			b := s.with(func(c *events.Config) { c.Attempts = 2 })
			s.engage("")
			d := s.request("r-1")
			for i := range 5 {
				a := args("redis")
				a.HashOwner = s.state().Owner
				run := s.opens(b, d, a)
				require.Equal(s, events.Run, run.Verdict, "try %d", i)
				f, err := b.GiveUp(s.Context(), d, run.Epoch)
				require.NoError(s, err)
				require.Equal(s, events.Held, f)
				require.False(s, s.state().Leased)
				require.Empty(s, s.places())
				require.Equal(s, "parked", s.holder(d.Entry))
				f, err = b.GiveUp(s.Context(), d, run.Epoch)
				require.NoError(s, err)
				require.Equal(s, events.Fenced, f)
				s.claim(me, d.Entry)
			}
		}},
	}
}

// place is the last position that a request was told.
func (s *scene) place(slug, id string) (place int) {
	s.Helper()
	all, err := s.bus.Replies(s.Context(), slug, id, "")
	require.NoError(s, err)
	for _, r := range all {
		if r.Progress != nil && r.Progress.Stage == events.StageQueued {
			place = r.Progress.Position
		}
	}
	return place
}
