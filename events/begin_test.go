package events_test

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/events"
)

// told lists the stages of a request's progress.
func (s *scene) told(id string) (stages []events.Stage) {
	s.Helper()
	all, err := s.bus.Replies(s.Context(), agent, id, "")
	require.NoError(s, err)
	for _, r := range all {
		if r.Progress != nil {
			stages = append(stages, r.Progress.Stage)
		}
	}
	return stages
}

// holder is who an entry is pending with.
func (s *scene) holder(entry string) string {
	s.Helper()
	p, err := s.rdb.XPendingExt(s.Context(), &redis.XPendingExtArgs{Stream: s.key("events"), Group: "workers", Start: entry, End: entry, Count: 1}).Result()
	require.NoError(s, err)
	require.Len(s, p, 1)
	return p[0].Consumer
}

// owned is args for an agent whose sandbox is cont's already.
func owned(asked ...string) events.BeginArgs {
	a := args(asked...)
	a.HashOwner = cont
	return a
}

func beginTests() []test {
	return []test{
		{"begin: lost when the entry is another's, or forgotten", func(s *scene) {
			s.engage("")
			d := s.request("r-1")
			s.claim(other, d.Entry)
			require.Equal(s, events.Lost, s.begin(d, args("redis")).Verdict)
			s.claim(me, d.Entry)
			require.NoError(s, s.rdb.Del(s.Context(), s.key("events")).Err())
			require.Equal(s, events.Lost, s.begin(d, args("redis")).Verdict)
		}},
		{"begin: what the guards saw has changed", func(s *scene) {
			s.engage("container")
			d := s.request("r-1")
			a := args("redis")
			a.Seen.Task = "T-0"
			require.Equal(s, events.Again, s.begin(d, a).Verdict, "another task")
			a = args("redis")
			a.Seen.Project = "other"
			require.Equal(s, events.Again, s.begin(d, a).Verdict, "another project")
			require.Equal(s, events.Again, s.begin(d, owned("redis")).Verdict, "another owner in the hash")
			a = args("redis")
			a.Seen.Owner = events.OwnerLease
			require.Equal(s, events.Again, s.begin(d, a).Verdict, "lease, where a container owns")
			require.Empty(s, s.told("r-1"))
			require.Equal(s, events.Run, s.begin(d, args("redis")).Verdict)
		}},
		{"begin: an engagement that ended before the request", func(s *scene) {
			s.engage("")
			s.publish(events.WorkEnded, events.Ended{})
			s.finishNext()
			require.Equal(s, events.Again, s.begin(s.request("r-1"), args("redis")).Verdict)
		}},
		{"begin: a hash that was lost takes the engagement from the guards", func(s *scene) {
			d := s.request("r-1")
			require.NoError(s, s.rdb.Del(s.Context(), s.key("agent:"+agent)).Err())
			require.Equal(s, events.Run, s.begin(d, args("redis")).Verdict)
			require.Equal(s, task, s.state().Task)
			owners, err := s.bus.Owners(s.Context())
			require.NoError(s, err)
			require.Equal(s, map[string]string{agent: cont}, owners)
		}},
		{"begin: another owner's sandbox ends, and nothing becomes stale", func(s *scene) {
			s.engage("")
			s.provision("r-1")
			d := s.request("r-2")
			a := owned("postgres")
			a.Seen.Owner = "new@later"
			b := s.begin(d, a)
			require.Equal(s, events.Run, b.Verdict)
			require.Empty(s, b.Record)
			require.True(s, s.terminal("r-1").Blanked)
			require.Empty(s, s.state().Ended)
			require.Equal(s, "new@later", s.state().Owner)
		}},
		{"begin: late", func(s *scene) {
			b := s.with(func(c *events.Config) { c.Accept = time.Millisecond })
			s.engage("")
			_, err := b.Publish(s.Context(), s.event(events.SandboxRequested, events.Requested{RequestID: "r-1"}))
			require.NoError(s, err)
			d := s.read(me)
			s.passes(d.Deadline)
			begun := s.begin(d, args("redis"))
			require.Equal(s, events.Done, begun.Verdict)
			require.Equal(s, events.StateLate, begun.State)
			r := s.terminal("r-1")
			require.Equal(s, 7, r.Refusal.Guard)
			require.True(s, r.Refusal.Retryable)
			require.Contains(s, r.Refusal.Remediate, "retry")
			require.Empty(s, s.state().Owner)
			s.drained()
		}},
		{"begin: who was queued in time is not late", func(s *scene) {
			b := s.with(func(c *events.Config) { c.Accept = 300 * time.Millisecond })
			s.engage("")
			first := s.request("r-1")
			run := s.begin(first, args("redis"))
			_, err := b.Publish(s.Context(), s.event(events.SandboxRequested, events.Requested{RequestID: "r-2"}))
			require.NoError(s, err)
			d := s.read(me)
			require.Equal(s, events.Busy, s.begin(d, owned("redis")).Verdict)
			s.passes(d.Deadline)
			s.record(first, run, "redis", "r1", want("redis"))
			s.claim(me, d.Entry)
			require.Equal(s, events.Hit, s.begin(d, owned("redis")).Verdict)
		}},
		{"begin: a hit, even under another's lease", func(s *scene) {
			s.engage("")
			run := s.provision("r-1")
			d := s.request("r-2")
			hit := s.begin(d, owned("postgres"))
			require.Equal(s, events.Hit, hit.Verdict)
			require.Equal(s, run.Epoch, s.state().Epoch, "a hit takes no epoch")
			require.Len(s, hit.Record, 2)
			more := s.request("r-3")
			require.Equal(s, events.Run, s.begin(more, owned("mongo")).Verdict)
			require.Equal(s, events.Hit, s.begin(d, owned("postgres")).Verdict)
			v, err := s.bus.AnswerHit(s.Context(), d, want("postgres"), map[string]string{"postgres": "p1"})
			require.NoError(s, err)
			require.Equal(s, events.Done, v)
			r := s.terminal("r-2")
			require.Equal(s, events.Reused, r.Engines["postgres"].Outcome)
			require.Empty(s, r.Engines["postgres"].Reason)
		}},
		{"begin: dead, misnamed or too small is no hit", func(s *scene) {
			s.engage("")
			s.provision("r-1")
			d := s.request("r-2")
			a := owned("postgres")
			a.Moved = []string{"p1"}
			moved := s.begin(d, a)
			require.Equal(s, events.Run, moved.Verdict)
			require.Contains(s, moved.Record, "postgres", "what is misnamed is alive: never struck")
			a = owned("postgres")
			a.Epoch, a.Gone = moved.Epoch, []string{"p1"}
			dead := s.begin(d, a)
			require.Equal(s, events.Run, dead.Verdict)
			require.NotContains(s, dead.Record, "postgres")
			require.Contains(s, dead.Record, "redis", "the healthy one stays")
			require.Greater(s, dead.Epoch, moved.Epoch)
			require.Equal(s, events.Revoked, s.record(d, dead, "postgres", "p1", a.Asked), "struck is for ever")
			require.Equal(s, events.Held, s.record(d, dead, "postgres", "p2", a.Asked))
			require.Equal(s, events.Held, s.settle(d, dead.Epoch, nil, a.Asked))
			big := s.request("r-3")
			require.Equal(s, events.Run, s.begin(big, owned("postgres+vector")).Verdict)
		}},
		{"begin: busy parks the entry, and says queued once", func(s *scene) {
			s.engage("")
			first := s.request("r-1")
			require.Equal(s, events.Run, s.begin(first, args("redis")).Verdict)
			d := s.request("r-2")
			require.Equal(s, events.Busy, s.begin(d, owned("redis")).Verdict)
			require.Equal(s, "parked", s.holder(d.Entry))
			require.Equal(s, events.Lost, s.begin(d, owned("redis")).Verdict)
			s.claim(me, d.Entry)
			require.Equal(s, events.Busy, s.begin(d, owned("redis")).Verdict)
			require.Equal(s, []events.Stage{events.StageQueued}, s.told("r-2"))
		}},
		{"begin: tried too often", func(s *scene) {
			b := s.with(func(c *events.Config) { c.Attempts, c.Lease = 2, time.Millisecond })
			s.engage("")
			d := s.request("r-1")
			a := args("redis")
			for range 2 {
				s.eventually(func() bool { return !s.state().Leased }, "the lease runs out")
				run, err := b.Begin(s.Context(), d, a)
				require.NoError(s, err)
				require.Equal(s, events.Run, run.Verdict)
				a.HashOwner = cont
			}
			s.eventually(func() bool { return !s.state().Leased }, "the lease runs out")
			begun, err := b.Begin(s.Context(), d, a)
			require.NoError(s, err)
			require.Equal(s, events.Done, begun.Verdict)
			require.Equal(s, events.StateExhausted, begun.State)
			require.Equal(s, 8, s.terminal("r-1").Refusal.Guard)
			dead, err := s.rdb.XRange(s.Context(), s.key("dead"), "-", "+").Result()
			require.NoError(s, err)
			require.Len(s, dead, 1)
			require.Equal(s, d.Entry, dead[0].Values["entry"])
			require.Equal(s, "sandbox.requested", dead[0].Values["was:type"])
			s.drained()
		}},
		{"begin: beginning again under its own epoch is no attempt", func(s *scene) {
			s.engage("")
			d := s.request("r-1")
			a := args("redis")
			last := ""
			for range 12 { // more than the attempts there are
				b := s.begin(d, a)
				require.Equal(s, events.Run, b.Verdict)
				require.Greater(s, b.Epoch, last)
				last, a.Epoch, a.HashOwner = b.Epoch, b.Epoch, cont
			}
		}},
		{"begin: a call whose answer was lost is answered again", func(s *scene) {
			s.engage("")
			d := s.request("r-1")
			sent := s.capture()
			b := s.begin(d, args("redis"))
			again, err := s.calls.Do(s.Context(), sent()...).StringSlice()
			require.NoError(s, err)
			require.Equal(s, "RUN", again[0])
			require.Equal(s, b.Epoch, again[3])
		}},
		{"begin: a reply that lapsed comes back without credentials", func(s *scene) {
			s.engage("")
			s.provision("r-1")
			require.NoError(s, s.rdb.Del(s.Context(), s.bus.ReplyStream(agent, "r-1")).Err())
			d := s.request("r-1") // under another event ID
			begun := s.begin(d, owned("postgres"))
			require.Equal(s, events.Done, begun.Verdict)
			require.Equal(s, events.StateOK, begun.State)
			require.True(s, s.terminal("r-1").Blanked)
			s.drained()
		}},
		{"begin: a refusal that lapsed comes back in its words", func(s *scene) {
			s.engage("")
			d := s.request("r-1")
			ok, err := s.bus.Refuse(s.Context(), d, events.StateRefused, events.Refusal{Guard: 3, Message: "m", Remediate: "sandbox_services"}, task)
			require.NoError(s, err)
			require.True(s, ok)
			require.NoError(s, s.rdb.Del(s.Context(), s.bus.ReplyStream(agent, "r-1")).Err())
			require.Equal(s, events.Done, s.begin(s.request("r-1"), args("redis")).Verdict)
			r := s.terminal("r-1")
			require.Equal(s, events.StateRefused, r.State)
			require.Equal(s, &events.Refusal{Guard: 3, Message: "m", Remediate: "sandbox_services"}, r.Refusal)
		}},
		{"begin: what was answered but not finished is resumed", func(s *scene) {
			s.engage("")
			d := s.request("r-1")
			a := args("redis")
			first := s.begin(d, a)
			s.record(d, first, "redis", "r1", a.Asked)
			require.Equal(s, events.StateOK, s.terminal("r-1").State)
			a.Epoch, a.HashOwner = first.Epoch, cont
			b := s.begin(d, a)
			require.Equal(s, events.Run, b.Verdict)
			require.True(s, b.Answered)
			require.Contains(s, b.Record, "redis")
			s.record(d, b, "postgres", "p1", a.Asked)
			require.Equal(s, events.Held, s.settle(d, b.Epoch, nil, a.Asked))
			s.terminal("r-1")
			s.drained()
			d = s.request("r-1")
			require.Equal(s, events.Done, s.begin(d, owned("redis")).Verdict)
			s.terminal("r-1")
		}},
	}
}

// capture notes the last script call that is sent from now on.
func (s *scene) capture() func() []any {
	h := &recorder{}
	s.calls.AddHook(h)
	return func() []any { return h.last }
}

type recorder struct{ last []any }

func (h *recorder) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h *recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *recorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" || cmd.Name() == "eval" {
			h.last = cmd.Args()
		}
		return next(ctx, cmd)
	}
}
