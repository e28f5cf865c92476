package events_test

import (
	"errors"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/events"
)

func (s *scene) length() int64 {
	s.Helper()
	n, err := s.rdb.XLen(s.Context(), s.key("events")).Result()
	require.NoError(s, err)
	return n
}

func publishTests() []test {
	return []test{
		{"publishing is idempotent by event ID", func(s *scene) {
			e := s.event(events.WorkStarted, events.Started{TaskID: task, Project: proj})
			first, err := s.bus.Publish(s.Context(), e)
			require.NoError(s, err)
			require.False(s, first.Known)
			again, err := s.bus.Publish(s.Context(), e)
			require.NoError(s, err)
			require.Equal(s, first.StreamID, again.StreamID)
			require.True(s, again.Known)
			require.EqualValues(s, 1, s.length())
		}},
		{"an end takes effect at once", func(s *scene) {
			s.engage("container")
			s.provision("r-1")
			d := s.request("r-2")
			a := args("mongo")
			a.HashOwner = cont
			require.Equal(s, events.Run, s.begin(d, a).Verdict)
			p := s.publish(events.WorkEnded, events.Ended{Verb: "i_am_done", TaskID: task})
			st := s.state()
			require.Equal(s, p.StreamID, st.Ended)
			require.False(s, st.Leased)
			require.True(s, st.WorkEnded)
			require.True(s, st.Known)
			require.Empty(s, st.Task)
			require.False(s, st.Owned)
			_, err := s.bus.Sandbox(s.Context(), agent, false)
			require.ErrorIs(s, err, events.ErrExpired)
			r := s.terminal("r-1")
			require.Equal(s, events.StateOK, r.State)
			require.True(s, r.Blanked)
			require.Empty(s, r.Engines)
			begun := s.begin(d, a)
			require.Equal(s, events.Done, begun.Verdict)
			require.Equal(s, events.StateStale, begun.State)
			require.Equal(s, events.StateStale, s.terminal("r-2").State)
			require.Equal(s, 2, s.terminal("r-2").Refusal.Guard)
			require.Contains(s, s.terminal("r-2").Refusal.Remediate, "give_me_work")
			d = s.read(me)
			require.True(s, d.Ends)
		}},
		{"the end of another task is moot, and stays so", func(s *scene) {
			s.engage("")
			late := s.event(events.WorkEnded, events.Ended{Verb: "unclaim", TaskID: "T-0"})
			p, err := s.bus.Publish(s.Context(), late)
			require.NoError(s, err)
			require.True(s, p.Moot)
			require.Empty(s, s.state().Ended)
			require.Equal(s, task, s.state().Task)
			s.drained()
			s.publish(events.WorkStarted, events.Started{TaskID: "T-0", Project: proj})
			before := s.state().Ended
			p, err = s.bus.Publish(s.Context(), late)
			require.NoError(s, err)
			require.True(s, p.Moot)
			require.Equal(s, before, s.state().Ended)
			require.Equal(s, "T-0", s.state().Task)
		}},
		{"an end without a task ends whatever the agent works on", func(s *scene) {
			s.engage("")
			p := s.publish(events.WorkEnded, events.Ended{Verb: "i_am_idle"})
			require.Equal(s, p.StreamID, s.state().Ended)
		}},
		{"new work of another task or project is an end, the same is not", func(s *scene) {
			s.engage("container")
			s.publish(events.WorkStarted, events.Started{TaskID: task, Project: proj, Status: "in_review"})
			require.False(s, s.read(me).Ends)
			require.Empty(s, s.state().Ended)
			require.True(s, s.state().Owned)
			p := s.publish(events.WorkStarted, events.Started{TaskID: task, Project: "other"})
			require.Equal(s, p.StreamID, s.state().Ended)
			require.Equal(s, "other", s.state().Project)
			require.False(s, s.state().Owned, "owned goes with the engagement")
			require.True(s, s.read(me).Ends)
			s.publish(events.WorkEnded, events.Ended{})
			ended := s.state().Ended
			s.publish(events.WorkStarted, events.Started{TaskID: "T-9", Project: proj})
			require.Equal(s, ended, s.state().Ended, "what has ended does not end again")
			require.False(s, s.state().WorkEnded)
		}},
		{"an operator's removal is an end, and leaves the engagement", func(s *scene) {
			s.engage("")
			s.provision("r-1")
			p := s.publish(events.AgentStopped, events.Stopped{Reason: "operator"})
			st := s.state()
			require.Equal(s, p.StreamID, st.Ended)
			require.Equal(s, task, st.Task)
			require.True(s, s.terminal("r-1").Blanked)
		}},
		{"a stop goes by its owner", func(s *scene) {
			s.engage("")
			s.provision("r-1")
			p := s.publish(events.AgentStopped, events.Stopped{Owner: "dead@x"})
			require.True(s, p.Moot)
			s.drained()
			_, err := s.bus.Sandbox(s.Context(), agent, false)
			require.NoError(s, err)

			e := s.event(events.AgentStopped, events.Stopped{Owner: cont})
			p, err = s.bus.Publish(s.Context(), e)
			require.NoError(s, err)
			require.False(s, p.Moot)
			require.Empty(s, s.state().Owner)
			require.Empty(s, s.state().Ended, "a stop raises no watermark")
			_, err = s.bus.Sandbox(s.Context(), agent, false)
			require.ErrorIs(s, err, events.ErrExpired)
			require.True(s, s.terminal("r-1").Blanked)
			require.True(s, s.read(me).Ends)

			p, err = s.bus.Publish(s.Context(), e)
			require.NoError(s, err)
			require.True(s, p.Moot, "the second observer's")
			s.provision("r-2") // a late look puts the dead owner back
			p, err = s.bus.Publish(s.Context(), e)
			require.NoError(s, err)
			require.False(s, p.Moot, "the same event ID ends it again")
			require.Empty(s, s.state().Owner)
		}},
		{"the caps refuse requests, never an end", func(s *scene) {
			b := s.with(func(c *events.Config) { c.StreamCap, c.AgentCap = 3, 2 })
			ask := func(id string) error {
				_, err := b.Publish(s.Context(), s.event(events.SandboxRequested, events.Requested{RequestID: id}))
				return err
			}
			require.NoError(s, ask("r-1"))
			require.NoError(s, ask("r-2"))
			err := ask("r-3")
			require.ErrorIs(s, err, events.ErrFull, "the agent's share")
			require.ErrorContains(s, err, "2 requests of agent "+agent)
			first := s.read(me)
			ok, err := s.bus.Finish(s.Context(), first)
			require.NoError(s, err)
			require.True(s, ok)
			require.NoError(s, ask("r-4"))
			require.ErrorIs(s, ask("r-5"), events.ErrFull)
			// An entry that went without a word does not count for ever.
			second := s.read(me)
			require.NoError(s, s.rdb.XAck(s.Context(), s.key("events"), "workers", second.Entry).Err())
			require.NoError(s, s.rdb.XDel(s.Context(), s.key("events"), second.Entry).Err())
			require.NoError(s, ask("r-6"))
			s.publish(events.WorkStarted, events.Started{TaskID: task, Project: proj})
			foreign := s.event(events.SandboxRequested, events.Requested{RequestID: "r-7"})
			foreign.Subject = "another"
			_, err = b.Publish(s.Context(), foreign)
			require.ErrorIs(s, err, events.ErrFull, "the stream's")
			_, err = b.Publish(s.Context(), s.event(events.WorkEnded, events.Ended{}))
			require.NoError(s, err)
		}},
		{"a request's deadline is set at publication", func(s *scene) {
			now, err := s.rdb.Time(s.Context()).Result()
			require.NoError(s, err)
			p := s.publish(events.SandboxRequested, events.Requested{RequestID: "r-1"})
			require.WithinDuration(s, now.Add(10*time.Second), p.Deadline, 5*time.Second)
			require.True(s, s.read(me).Deadline.Equal(p.Deadline))
		}},
		{"an event that cannot be decoded is not published", func(s *scene) {
			var wrong *events.DecodeError
			for _, e := range []events.Event{
				{ID: "x", Type: "work.paused", Subject: agent},
				{ID: "x", Type: events.WorkStarted, Subject: agent, Data: data(events.Started{TaskID: task})},
				{ID: "x", Type: events.SandboxRequested, Subject: agent, Data: data(events.Requested{RequestID: "a}b"})},
				{ID: "x", Type: events.SandboxRequested, Subject: agent, Data: []byte(`{"request_id":"a","services":[]}`)},
				{ID: "x", Type: events.WorkEnded, Subject: "No Slug"},
				{ID: "", Type: events.WorkEnded, Subject: agent},
			} {
				_, err := s.bus.Publish(s.Context(), e)
				require.True(s, errors.As(err, &wrong), "%v: %v", e, err)
			}
			s.drained()
		}},
		{"the watermark only grows", func(s *scene) {
			s.engage("")
			const future = "99999999999999-0"
			require.NoError(s, s.rdb.HSet(s.Context(), s.key("agent:"+agent), "ended", future).Err())
			s.publish(events.WorkEnded, events.Ended{})
			require.Equal(s, future, s.state().Ended)
		}},
	}
}
