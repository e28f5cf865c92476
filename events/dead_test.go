package events_test

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/events"
)

// letters waits until there are n dead letters, and gives them, the newest first.
func (s *scene) letters(n int) []events.Letter {
	s.Helper()
	var all []events.Letter
	s.eventually(func() bool {
		var err error
		all, _, err = s.bus.DeadLetters(s.Context(), "", 500)
		return err == nil && len(all) == n
	}, "dead letters")
	return all
}

func (s *scene) retryRefused(id, says string) {
	s.Helper()
	_, err := s.bus.RetryLetter(s.Context(), id)
	var refused *events.RetryError
	require.ErrorAs(s, err, &refused)
	require.Contains(s, refused.Problem, says)
	_, err = s.bus.Letter(s.Context(), id)
	require.NoError(s, err, "it stays")
}

// hasty is a bus on which what is left is delivered again at once.
func (s *scene) hasty() *events.Bus {
	return s.with(func(c *events.Config) { c.ClaimIdle, c.Lease, c.Attempts = 60*time.Millisecond, 30*time.Millisecond, 3 })
}

// letter makes a dead letter of the next entry.
func (s *scene) letter() events.Letter {
	s.Helper()
	before, _, err := s.bus.DeadLetters(s.Context(), "", 500)
	require.NoError(s, err)
	ok, err := s.bus.DeadLetter(s.Context(), s.read(me), "a test")
	require.NoError(s, err)
	require.True(s, ok)
	return s.letters(len(before) + 1)[0]
}

func deadTests() []test {
	return []test{
		{"dead: a handler that always panics", func(s *scene) {
			s.publish(events.SandboxRequested, events.Requested{RequestID: "r-1", Role: "developer", Gateway: "gw"})
			s.publish(events.WorkEnded, events.Ended{})
			var calls atomic.Int32
			b := s.hasty()
			w := s.consume(b, events.ConsumeOptions{Name: me, Slots: 2}, func(_ context.Context, d events.Delivery) {
				if calls.Add(1); d.Event.Type == events.WorkEnded {
					panic("hunter2")
				}
				_ = strings.Split(d.Entry, "-")[len(d.Entry)]
			})
			all := s.letters(2)
			s.stopped(w)
			s.drained()
			require.EqualValues(s, 6, calls.Load(), "three times each")
			for _, l := range all {
				require.Equal(s, events.CausePanicked, l.Cause)
				require.Contains(s, l.Reason, "panicked 3 times")
				require.NotContains(s, l.Reason, "hunter2")
				require.NotNil(s, l.Event)
				if l.Event.Type == events.SandboxRequested {
					require.Contains(s, l.Reason, "index out of range")
				}
			}
			reply := s.terminal("r-1")
			require.Equal(s, events.StateExhausted, reply.State)
			require.NotEmpty(s, reply.Refusal.Message)
			g, err := s.bus.Gauges(s.Context())
			require.NoError(s, err)
			require.EqualValues(s, 2, g.DeadLetters)
			require.EqualValues(s, 2, g.Letters[events.CausePanicked])
		}},
		{"dead: a handler that leaves its entry is not counted", func(s *scene) {
			s.publish(events.WorkEnded, events.Ended{})
			var calls atomic.Int32
			b := s.hasty()
			w := s.consume(b, events.ConsumeOptions{Name: me, Slots: 1}, func(ctx context.Context, d events.Delivery) {
				if calls.Add(1) > 6 { // what it needs was out of reach until now
					_, _ = b.Finish(ctx, d)
				}
			})
			s.eventually(func() bool { return s.length() == 0 }, "finished")
			s.stopped(w)
			s.letters(0)
		}},
		{"dead: listed in pages, shown and dropped", func(s *scene) {
			for range 5 {
				s.publish(events.WorkEnded, events.Ended{Verb: "i_am_done"})
				s.letter()
			}
			all := s.letters(5)
			first, next, err := s.bus.DeadLetters(s.Context(), "", 3)
			require.NoError(s, err)
			require.Equal(s, all[:3], first)
			second, end, err := s.bus.DeadLetters(s.Context(), next, 3)
			require.NoError(s, err)
			require.Equal(s, all[3:], second)
			require.Empty(s, end)
			_, _, err = s.bus.DeadLetters(s.Context(), "nonsense", 3)
			var wrong *events.DecodeError
			require.ErrorAs(s, err, &wrong)

			l, err := s.bus.Letter(s.Context(), all[2].ID)
			require.NoError(s, err)
			require.Equal(s, all[2], l)
			require.Equal(s, events.CauseRefused, l.Cause)
			require.Equal(s, "a test", l.Reason)
			require.Equal(s, "work.ended", l.Fields["type"])
			require.WithinDuration(s, time.Now(), l.At, time.Hour)
			require.NoError(s, s.bus.DropLetter(s.Context(), l.ID))
			require.ErrorIs(s, s.bus.DropLetter(s.Context(), l.ID), events.ErrNoLetter)
			_, err = s.bus.RetryLetter(s.Context(), l.ID)
			require.ErrorIs(s, err, events.ErrNoLetter)
			for _, id := range []string{"nonsense", "", "-", "+"} {
				_, err = s.bus.Letter(s.Context(), id)
				require.ErrorIs(s, err, events.ErrNoLetter)
				require.ErrorIs(s, s.bus.DropLetter(s.Context(), id), events.ErrNoLetter)
			}
			s.letters(4)
		}},
		{"dead: an end that is put back is delivered again", func(s *scene) {
			s.engage("container")
			s.publish(events.WorkEnded, events.Ended{})
			l := s.letter()
			id, err := s.bus.RetryLetter(s.Context(), l.ID)
			require.NoError(s, err)
			s.letters(0)
			d := s.read(me)
			require.Equal(s, id, d.Entry)
			require.True(s, d.Ends)
			require.False(s, d.Foreign)
			ok, err := s.bus.DeadLetter(s.Context(), d, "again")
			require.NoError(s, err)
			require.True(s, ok)
			require.Equal(s, 1, s.letters(1)[0].Retried)
		}},
		{"dead: an end that is put back spares the sandbox that came after it", func(s *scene) {
			s.engage("container")
			s.publish(events.WorkEnded, events.Ended{})
			l := s.letter()
			s.engage("container")
			s.provision("r-1")
			_, err := s.bus.RetryLetter(s.Context(), l.ID)
			require.NoError(s, err)
			s.finishNext()
			require.Len(s, s.terminal("r-1").Engines, 2)
			_, err = s.bus.Sandbox(s.Context(), agent, false)
			require.NoError(s, err)
		}},
		{"dead: a request that has its answer is not put back", func(s *scene) {
			s.publish(events.SandboxRequested, events.Requested{RequestID: "r-1", Gateway: "gw"})
			l := s.letter()
			require.Equal(s, events.StateExhausted, s.terminal("r-1").State)
			s.retryRefused(l.ID, "has its answer already (exhausted)")
			require.NoError(s, s.rdb.Del(s.Context(), s.key("request:r-1")).Err())
			s.retryRefused(l.ID, "nothing is known of the request")
		}},
		{"dead: a request that nobody has answered is put back while its time lasts", func(s *scene) {
			s.engage("")
			s.publish(events.SandboxRequested, events.Requested{RequestID: "r-1", Gateway: "gw"})
			l := s.letter()
			// As if the worker that kept it had not understood it: such a one does not know whom to answer.
			require.NoError(s, s.rdb.HDel(s.Context(), s.key("request:r-1"), "state").Err())
			require.NoError(s, s.rdb.Del(s.Context(), s.bus.ReplyStream(agent, "r-1")).Err())
			_, err := s.bus.RetryLetter(s.Context(), l.ID)
			require.NoError(s, err)
			d := s.read(me)
			require.Equal(s, events.Run, s.begin(d, args("redis")).Verdict)
		}},
		{"dead: a request whose time is over is not put back", func(s *scene) {
			b := s.with(func(c *events.Config) { c.Accept = time.Millisecond })
			_, err := b.Publish(s.Context(), s.event(events.SandboxRequested, events.Requested{RequestID: "r-1", Gateway: "gw"}))
			require.NoError(s, err)
			l := s.letter()
			require.NoError(s, s.rdb.HDel(s.Context(), s.key("request:r-1"), "state").Err())
			s.eventually(func() bool { return s.rdb.Time(s.Context()).Val().Sub(l.At) > 5*time.Millisecond }, "time passes")
			s.retryRefused(l.ID, "time to be taken is over")
		}},
		{"dead: what is no event, or not whole, is not put back", func(s *scene) {
			s.add("nonsense", "1")
			s.add("type", "work.ended", "id", "x", "subject", agent, "data", `{"verb":"`+strings.Repeat("x", 5000)+`"}`)
			w := s.consume(s.bus, events.ConsumeOptions{Name: me, Slots: 1}, func(ctx context.Context, d events.Delivery) {
				_, _ = s.bus.DeadLetter(ctx, d, "a test")
			})
			all := s.letters(2)
			s.stopped(w)
			require.True(s, all[0].Cut)
			s.retryRefused(all[0].ID, "larger than is kept")
			require.Equal(s, events.CauseUndecodable, all[1].Cause)
			require.Equal(s, map[string]string{"nonsense": "1"}, all[1].Fields)
			s.retryRefused(all[1].ID, "type: is missing")
		}},
		{"dead: a foreign event is put back unless it would undo what came later", func(s *scene) {
			began := []any{"type", "work.started", "id", "f-1", "subject", agent, "data", `{"task_id":"T-0","project":"shop"}`}
			ended := []any{"type", "work.ended", "id", "f-2", "subject", agent, "data", `{}`}
			named := []any{"type", "work.ended", "id", "f-3", "subject", agent, "data", `{"task_id":"T-0"}`}
			removed := []any{"type", "agent.stopped", "id", "f-4", "subject", agent, "data", `{}`}
			s.engage("container")
			for _, fields := range [][]any{began, ended, named, removed} {
				s.add(fields...)
				l := s.letter()
				_, err := s.bus.RetryLetter(s.Context(), l.ID)
				require.NoError(s, err, "nothing came later")
				require.True(s, s.finishForeign())
			}
			for _, fields := range [][]any{began, ended, named, removed} {
				s.add(fields...)
				s.letter()
			}
			s.engage("container")
			all := s.letters(4)
			s.retryRefused(all[3].ID, "begun or ended anew")
			s.retryRefused(all[2].ID, "begun or ended anew")
			s.retryRefused(all[0].ID, "begun or ended anew")
			_, err := s.bus.RetryLetter(s.Context(), all[1].ID)
			require.NoError(s, err, "it names its task, and ends no other")
			s.publish(events.WorkEnded, events.Ended{})
			s.retryRefused(all[3].ID, "begun or ended anew")
		}},
		{"dead: no room for a request", func(s *scene) {
			s.add("type", "sandbox.requested", "id", "f-1", "subject", agent, "data", `{"request_id":"r-1"}`)
			l := s.letter()
			require.NoError(s, s.rdb.Del(s.Context(), s.key("request:r-1")).Err())
			full := s.with(func(c *events.Config) { c.StreamCap = 1 })
			s.publish(events.WorkEnded, events.Ended{})
			_, err := full.RetryLetter(s.Context(), l.ID)
			require.ErrorIs(s, err, events.ErrFull)
		}},
	}
}

// finishForeign finishes the next entry, and says whether it is one that has had no effect.
func (s *scene) finishForeign() bool {
	s.Helper()
	d := s.read(me)
	_, err := s.bus.Finish(s.Context(), d)
	require.NoError(s, err)
	return d.Foreign
}
