package events_test

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/events"
)

func (s *scene) beat(d events.Delivery, epoch string) events.Fencing {
	s.Helper()
	f, err := s.bus.Beat(s.Context(), d, epoch)
	require.NoError(s, err)
	return f
}

func leaseTests() []test {
	return []test{
		{"a run from request to reply", func(s *scene) {
			s.engage("container")
			d := s.request("r-1")
			a := args("postgres")
			b := s.begin(d, a)
			require.Equal(s, events.Run, b.Verdict)
			require.Equal(s, d.Entry, b.Born)
			require.Empty(s, b.Record)
			require.NoError(s, s.bus.Tell(s.Context(), d, b.Epoch, events.Progress{Stage: events.StagePulling, Engine: "postgres", Done: 3, Total: 9}))
			require.Equal(s, events.Held, s.record(d, b, "postgres", "p1", a.Asked, "vector"))
			r := s.terminal("r-1")
			require.Equal(s, events.StateOK, r.State)
			require.Equal(s, task, r.Task)
			require.Nil(s, r.Refusal)
			require.WithinDuration(s, time.Now().Add(time.Hour), r.Expires, time.Minute)
			require.Equal(s, events.Created, r.Engines["postgres"].Outcome)
			require.Equal(s, []string{"vector"}, r.Engines["postgres"].Features)
			require.JSONEq(s, `{"password":"pw-p1"}`, string(r.Engines["postgres"].Payload))
			require.Len(s, r.Engines, 1)
			require.Equal(s, []events.Stage{events.StageAccepted, events.StagePulling}, s.told("r-1"))
			require.Equal(s, events.Held, s.record(d, b, "redis", "r1", a.Asked))
			require.NoError(s, s.bus.Tell(s.Context(), d, b.Epoch, events.Progress{Stage: events.StageReady}), "after the reply: not written")
			require.Equal(s, events.Held, s.settle(d, b.Epoch, nil, a.Asked))
			s.terminal("r-1")
			s.drained()
			st := s.state()
			require.Equal(s, cont, st.Owner)
			require.True(s, st.Owned)
			require.False(s, st.Leased)
			require.Equal(s, b.Epoch, st.Epoch)
			require.Equal(s, []string{"h1"}, st.Hosts)
		}},
		{"beat: extends the lease and keeps the entry", func(s *scene) {
			b := s.with(func(c *events.Config) { c.Lease = time.Hour })
			s.engage("")
			d := s.request("r-1")
			run := s.begin(d, args("redis"))
			before, err := s.rdb.HGet(s.Context(), s.key("agent:"+agent), "until").Int64()
			require.NoError(s, err)
			s.claim(other, d.Entry)
			f, err := b.Beat(s.Context(), d, run.Epoch)
			require.NoError(s, err)
			require.Equal(s, events.Held, f)
			after, err := s.rdb.HGet(s.Context(), s.key("agent:"+agent), "until").Int64()
			require.NoError(s, err)
			require.Greater(s, after, before)
			require.Equal(s, me, s.holder(d.Entry))
			require.Equal(s, events.Fenced, s.beat(d, "1"), "another epoch")
		}},
		{"a lease that ran out is another's: everything of the old run is fenced", func(s *scene) {
			short := s.with(func(c *events.Config) { c.Lease = time.Millisecond })
			s.engage("")
			d := s.request("r-1")
			old, err := short.Begin(s.Context(), d, args("redis"))
			require.NoError(s, err)
			s.eventually(func() bool { return !s.state().Leased }, "the lease runs out")
			taken := d
			s.claim(other, d.Entry)
			taken = s.as(other, d)
			b := s.begin(taken, owned("redis"))
			require.Equal(s, events.Run, b.Verdict)
			require.Greater(s, b.Epoch, old.Epoch, "epochs never repeat")
			require.Equal(s, []events.Stage{events.StageAccepted}, s.told("r-1"), "accepted is told once")

			require.Equal(s, events.Fenced, s.beat(d, old.Epoch))
			require.Equal(s, events.Fenced, s.record(d, old, "redis", "r0", want("redis")))
			require.Equal(s, events.Fenced, s.settle(d, old.Epoch, nil, want("redis")))
			require.NoError(s, s.bus.Tell(s.Context(), d, old.Epoch, events.Progress{Stage: events.StageReady}))
			require.Equal(s, []events.Stage{events.StageAccepted}, s.told("r-1"))
			require.Equal(s, events.Lost, s.begin(d, owned("redis")).Verdict)
			ok, err := s.bus.Finish(s.Context(), d)
			require.NoError(s, err)
			require.False(s, ok)
			ok, err = s.bus.Refuse(s.Context(), d, events.StateFailed, events.Refusal{Guard: 8, Message: "m", Remediate: "r"}, "")
			require.NoError(s, err)
			require.False(s, ok)
			require.EqualValues(s, 1, s.length())
			_, err = s.bus.Sandbox(s.Context(), agent, false)
			require.ErrorIs(s, err, events.ErrExpired)
		}},
		{"an end, a stop and another's begin each fence the run", func(s *scene) {
			s.engage("")
			d := s.request("r-1")
			b := s.begin(d, args("redis"))
			s.publish(events.AgentStopped, events.Stopped{Owner: cont})
			require.Equal(s, events.Fenced, s.beat(d, b.Epoch), "a stop")
			b = s.begin(d, args("redis"))
			require.Equal(s, events.Run, b.Verdict, "a stop makes nothing stale")
			a := owned("redis")
			a.Seen.Owner = "new@later"
			next := s.begin(s.request2("r-2"), a)
			require.Equal(s, events.Run, next.Verdict)
			require.Equal(s, events.Fenced, s.beat(d, b.Epoch), "another owner")
			s.publish(events.WorkEnded, events.Ended{})
			require.Equal(s, events.Fenced, s.record(d, next, "redis", "r1", a.Asked), "an end")
		}},
		{"record: what was revoked, or was born before an end, is never recorded", func(s *scene) {
			s.engage("")
			s.publish(events.AgentStopped, events.Stopped{})
			s.finishNext()
			d := s.request("r-1")
			b := s.begin(d, args("redis"))
			old := b
			old.Born = s.state().Ended
			require.Equal(s, events.Revoked, s.record(d, old, "redis", "r0", want("redis")))
			fate, err := s.bus.Revoke(s.Context(), found("r1", b), b.Epoch, alive())
			require.NoError(s, err)
			require.Equal(s, events.FateDead, fate)
			require.Equal(s, events.Revoked, s.record(d, b, "redis", "r1", want("redis")))
			require.Equal(s, events.Held, s.record(d, b, "redis", "r2", want("redis")))
		}},
		{"record: the reply comes with the last of what was asked for", func(s *scene) {
			s.engage("")
			d := s.request("r-1")
			a := args("postgres+vector", "redis")
			b := s.begin(d, a)
			s.record(d, b, "redis", "r1", a.Asked)
			s.record(d, b, "postgres", "p1", a.Asked)
			require.Len(s, s.told("r-1"), 1)
			all, err := s.bus.Replies(s.Context(), agent, "r-1", "")
			require.NoError(s, err)
			require.Len(s, all, 1, "a feature is missing: no reply yet")
			f, err := s.bus.Record(s.Context(), d, b.Epoch, "postgres", entry("p1", b, "citext", "vector"), events.Extended, "vector was added", a.Asked)
			require.NoError(s, err)
			require.Equal(s, events.Held, f)
			r := s.terminal("r-1")
			require.Equal(s, events.EngineReply{Outcome: events.Extended, Reason: "vector was added", Features: []string{"citext", "vector"}, Payload: data(map[string]string{"password": "pw-p1"})}, r.Engines["postgres"])
			require.Len(s, r.Engines, 2)
		}},
		{"settle: a failure of what was asked for", func(s *scene) {
			s.engage("")
			d := s.request("r-1")
			a := args("postgres")
			b := s.begin(d, a)
			s.record(d, b, "redis", "r1", a.Asked)
			cause := events.Refusal{Guard: 8, Message: "postgres: exit 1", Remediate: "look at the log", Retryable: true, RetryAfterMS: 500}
			require.Equal(s, events.Held, s.settle(d, b.Epoch, &cause, a.Asked))
			r := s.terminal("r-1")
			require.Equal(s, events.StateFailed, r.State)
			require.Equal(s, &cause, r.Refusal)
			require.Equal(s, task, r.Task)
			sb, err := s.bus.Sandbox(s.Context(), agent, false)
			require.NoError(s, err)
			require.Contains(s, sb.Engines, "redis", "what is recorded stays")
			require.False(s, s.state().Leased)
			s.drained()
		}},
		{"settle: the record lapsed under the run", func(s *scene) {
			s.engage("")
			d := s.request("r-1")
			a := args("redis", "postgres")
			b := s.begin(d, a)
			s.record(d, b, "redis", "r1", a.Asked)
			require.NoError(s, s.rdb.Del(s.Context(), s.key("record:"+agent)).Err())
			s.record(d, b, "postgres", "p1", a.Asked)
			require.Equal(s, events.Lapsed, s.settle(d, b.Epoch, nil, a.Asked))
			require.False(s, s.state().Leased)
			require.Equal(s, me, s.holder(d.Entry))
			require.Equal(s, events.Run, s.begin(d, owned("redis", "postgres")).Verdict)
		}},
		{"a refusal of what is older than the watermark is stale", func(s *scene) {
			s.engage("")
			d := s.request("r-1")
			s.publish(events.AgentStopped, events.Stopped{})
			ok, err := s.bus.Refuse(s.Context(), d, events.StateRefused, events.Refusal{Guard: 3, Message: "m", Remediate: "r"}, task)
			require.NoError(s, err)
			require.True(s, ok)
			require.Equal(s, events.StateStale, s.terminal("r-1").State)
		}},
		{"a hit whose record or watermark moved on", func(s *scene) {
			s.engage("")
			s.provision("r-1")
			d := s.request("r-2")
			require.Equal(s, events.Hit, s.begin(d, owned("redis", "postgres")).Verdict)
			for _, checked := range []map[string]string{nil, {"redis": "r1"}, {"redis": "r1", "postgres": "p0"}} {
				v, err := s.bus.AnswerHit(s.Context(), d, want("redis", "postgres"), checked)
				require.NoError(s, err)
				require.Equal(s, events.Again, v, "%v", checked)
			}
			s.publish(events.WorkEnded, events.Ended{})
			v, err := s.bus.AnswerHit(s.Context(), d, want("redis", "postgres"), map[string]string{"redis": "r1", "postgres": "p1"})
			require.NoError(s, err)
			require.Equal(s, events.Again, v)
			s.publish(events.WorkStarted, events.Started{TaskID: task, Project: proj})
			a := owned("redis")
			run := s.begin(s.request2("r-3"), a)
			require.Equal(s, events.Run, run.Verdict)
			s.record(s.as(me, events.Delivery{Entry: run.Born}), run, "redis", "r3", a.Asked)
			v, err = s.bus.AnswerHit(s.Context(), d, want("redis"), map[string]string{"redis": "r3"})
			require.NoError(s, err)
			require.Equal(s, events.Again, v, "the next engagement's sandbox is not for a request of the last")
			s.claim(other, d.Entry)
			v, err = s.bus.AnswerHit(s.Context(), d, want("redis"), map[string]string{"redis": "r1"})
			require.NoError(s, err)
			require.Equal(s, events.Lost, v)
		}},
		{"log lines are answered without guards", func(s *scene) {
			s.publish(events.AgentStopped, events.Stopped{})
			s.finishNext()
			s.publish(events.LogsRequested, events.LogsWanted{RequestID: "l-1", Lines: 10})
			d := s.read(me)
			s.publish(events.AgentStopped, events.Stopped{})
			ok, err := s.bus.AnswerBody(s.Context(), d, data(map[string]string{"redis": "ready"}))
			require.NoError(s, err)
			require.True(s, ok)
			r := s.terminal("l-1")
			require.Equal(s, events.StateOK, r.State)
			require.False(s, r.Blanked)
			require.JSONEq(s, `{"redis":"ready"}`, string(r.Body))
		}},
		{"a dead letter answers its request", func(s *scene) {
			d := s.request("r-1")
			ok, err := s.bus.DeadLetter(s.Context(), d, "for a reason")
			require.NoError(s, err)
			require.True(s, ok)
			require.Equal(s, events.StateExhausted, s.terminal("r-1").State)
			g, err := s.bus.Gauges(s.Context())
			require.NoError(s, err)
			require.EqualValues(s, 1, g.DeadLetters)
			s.drained()
		}},
	}
}
