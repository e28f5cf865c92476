package events_test

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/events"
)

// follower is a Follow under way.
type follower struct {
	got   chan events.Reply
	ended chan error
}

func (s *scene) follow(ctx context.Context, id, after string) follower {
	f := follower{got: make(chan events.Reply, 100), ended: make(chan error, 1)}
	go func() {
		f.ended <- s.bus.Follow(ctx, agent, id, after, func(r events.Reply) error {
			f.got <- r
			return nil
		})
	}()
	return f
}

func (s *scene) next(f follower) events.Reply {
	s.Helper()
	select {
	case r := <-f.got:
		return r
	case err := <-f.ended:
		f.ended <- err
		select {
		case r := <-f.got:
			return r
		default:
			require.FailNow(s, "the follower ended", "%v", err)
		}
	case <-time.After(20 * time.Second):
		require.FailNow(s, "no reply came")
	}
	return events.Reply{}
}

func (s *scene) over(f follower) error {
	s.Helper()
	select {
	case err := <-f.ended:
		return err
	case <-time.After(20 * time.Second):
		require.FailNow(s, "the follower does not end")
	}
	return nil
}

// inbox runs RunInbox until the test ends, or stop is called.
func (s *scene) inbox() (stop func()) {
	ctx, cancel := context.WithCancel(s.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.bus.RunInbox(ctx, "gw")
	}()
	stop = func() { cancel(); <-done }
	s.Cleanup(stop)
	return stop
}

// steps runs a request to its end while somebody follows, step by step.
func (s *scene) steps(f follower, d events.Delivery) {
	s.Helper()
	a := args("redis")
	b := s.begin(d, a)
	require.Equal(s, events.StageAccepted, s.next(f).Progress.Stage)
	require.NoError(s, s.bus.Tell(s.Context(), d, b.Epoch, events.Progress{Stage: events.StageProbing, Engine: "redis"}))
	require.Equal(s, "redis", s.next(f).Progress.Engine)
	s.record(d, b, "redis", "r1", a.Asked)
	last := s.next(f)
	require.True(s, last.Terminal())
	require.Contains(s, last.Engines, "redis")
	require.NoError(s, s.over(f))
	require.Empty(s, f.got)
}

func replyTests() []test {
	return []test{
		{"follow: by notices", func(s *scene) {
			s.inbox()
			s.engage("")
			d := s.request("r-1")
			s.steps(s.follow(s.Context(), "r-1", ""), d)
		}},
		{"follow: without an inbox", func(s *scene) {
			s.engage("")
			d := s.request("r-1")
			s.steps(s.follow(s.Context(), "r-1", ""), d)
		}},
		{"follow: when every notice is lost", func(s *scene) {
			s.inbox()
			s.engage("")
			d := s.request("r-1")
			require.NoError(s, s.rdb.HSet(s.Context(), s.key("request:r-1"), "gateway", "").Err())
			f := s.follow(s.Context(), "r-1", "")
			require.NoError(s, s.rdb.HSet(s.Context(), s.key("request:r-1"), "gateway", "gw").Err())
			b := s.begin(d, args("redis"))
			require.NoError(s, s.rdb.Del(s.Context(), s.key("inbox:gw")).Err())
			s.next(f)
			s.record(d, b, "redis", "r1", want("redis"))
			require.NoError(s, s.rdb.Del(s.Context(), s.key("inbox:gw")).Err())
			require.True(s, s.next(f).Terminal())
		}},
		{"follow: who comes late, or again", func(s *scene) {
			s.engage("")
			s.provision("r-1")
			all, err := s.bus.Replies(s.Context(), agent, "r-1", "")
			require.NoError(s, err)
			require.Len(s, all, 2)
			f := s.follow(s.Context(), "r-1", "")
			require.Equal(s, all[0], s.next(f))
			require.Equal(s, all[1], s.next(f))
			require.NoError(s, s.over(f))
			f = s.follow(s.Context(), "r-1", all[0].ID)
			require.Equal(s, all[1], s.next(f))
			require.NoError(s, s.over(f))
		}},
		{"follow: an end between does not hide the reply", func(s *scene) {
			s.engage("")
			s.provision("r-1")
			all, err := s.bus.Replies(s.Context(), agent, "r-1", "")
			require.NoError(s, err)
			s.publish(events.WorkEnded, events.Ended{})
			f := s.follow(s.Context(), "r-1", all[0].ID)
			r := s.next(f)
			require.True(s, r.Blanked)
			require.Equal(s, all[1].ID, r.ID)
			raw, err := s.rdb.XRange(s.Context(), s.bus.ReplyStream(agent, "r-1"), "-", "+").Result()
			require.NoError(s, err)
			require.NotContains(s, raw[0].Values, "pw-")
			ttl, err := s.rdb.PTTL(s.Context(), s.bus.ReplyStream(agent, "r-1")).Result()
			require.NoError(s, err)
			require.Positive(s, ttl)
		}},
		{"follow: unknown, lapsed, another's", func(s *scene) {
			require.ErrorIs(s, s.over(s.follow(s.Context(), "nobody", "")), events.ErrExpired)
			s.engage("")
			s.provision("r-1")
			_, err := s.bus.Replies(s.Context(), "another", "r-1", "")
			require.ErrorIs(s, err, events.ErrExpired)
			require.NoError(s, s.rdb.Del(s.Context(), s.bus.ReplyStream(agent, "r-1")).Err())
			require.ErrorIs(s, s.over(s.follow(s.Context(), "r-1", "")), events.ErrExpired)
			_, err = s.bus.Replies(s.Context(), agent, "r-1", "")
			require.ErrorIs(s, err, events.ErrExpired)
		}},
		{"follow: ends with its context, and with who reads", func(s *scene) {
			s.request("r-1")
			all, err := s.bus.Replies(s.Context(), agent, "r-1", "")
			require.NoError(s, err)
			require.Empty(s, all, "nothing yet, but the request is known")
			ctx, cancel := context.WithCancel(s.Context())
			f := s.follow(ctx, "r-1", "")
			cancel()
			require.ErrorIs(s, s.over(f), context.Canceled)
			s.engage2()
			s.begin(s.as(me, events.Delivery{Entry: s.first()}), args("redis"))
			enough := errors.New("enough")
			require.ErrorIs(s, s.bus.Follow(s.Context(), agent, "r-1", "", func(events.Reply) error { return enough }), enough)
		}},
		{"follow: Redis forgets, and the request is published anew", func(s *scene) {
			s.inbox()
			s.engage("")
			e := s.event(events.SandboxRequested, events.Requested{RequestID: "r-1", Gateway: "gw"})
			_, err := s.bus.Publish(s.Context(), e)
			require.NoError(s, err)
			f := s.follow(s.Context(), "r-1", "")
			s.forget()
			_, err = s.bus.Publish(s.Context(), e)
			require.NoError(s, err)
			s.steps(f, s.read(me))
		}},
		{"a hit and a look slide the record's life", func(s *scene) {
			s.engage("")
			s.provision("r-1")
			record := s.key("record:" + agent)
			short := func() { require.NoError(s, s.rdb.PExpire(s.Context(), record, time.Minute).Err()) }
			left := func() time.Duration {
				d, err := s.rdb.PTTL(s.Context(), record).Result()
				require.NoError(s, err)
				return d
			}
			short()
			_, err := s.bus.Sandbox(s.Context(), agent, false)
			require.NoError(s, err)
			require.LessOrEqual(s, left(), time.Minute)
			sb, err := s.bus.Sandbox(s.Context(), agent, true)
			require.NoError(s, err)
			require.Greater(s, left(), 50*time.Minute)
			require.Equal(s, events.Tenancy{Task: task, Project: proj, Owner: cont}, sb.Tenancy)
			require.Equal(s, "p1", sb.Engines["postgres"].ID)
			short()
			d := s.request("r-2")
			s.begin(d, owned("redis"))
			_, err = s.bus.AnswerHit(s.Context(), d, want("redis"), map[string]string{"redis": "r1"})
			require.NoError(s, err)
			require.Greater(s, left(), 50*time.Minute)
			all, err := s.bus.Sandboxes(s.Context())
			require.NoError(s, err)
			require.Len(s, all, 1)
		}},
		{"a reply stream lapses, as do the request and the inbox", func(s *scene) {
			s.engage("")
			s.provision("r-1")
			for _, key := range []string{s.bus.ReplyStream(agent, "r-1"), s.key("request:r-1"), s.key("inbox:gw"), s.key("replies:" + agent), s.key("fate:" + agent), s.key("published:e1")} {
				ttl, err := s.rdb.PTTL(s.Context(), key).Result()
				require.NoError(s, err)
				require.Positive(s, ttl, key)
			}
		}},
		{"the audit tells what happened, without a credential", func(s *scene) {
			s.engage("")
			s.provision("r-1")
			s.publish(events.AgentStopped, events.Stopped{Owner: cont})
			s.publish(events.WorkEnded, events.Ended{})
			log, err := s.rdb.XRange(s.Context(), s.key("audit"), "-", "+").Result()
			require.NoError(s, err)
			var kinds []string
			for _, m := range log {
				kinds = append(kinds, m.Values["k"].(string)) //nolint:forcetypeassert // a test
				require.Equal(s, agent, m.Values["a"])
				for _, v := range m.Values {
					require.NotContains(s, v, "pw-")
				}
			}
			require.Equal(s, []string{"request", "record", "record", "reply", "leave", "end"}, kinds)
			require.JSONEq(s, `{"id":"p1","born":"`+log[1].Values["born"].(string)+`","epoch":"`+log[1].Values["ep"].(string)+`","features":""}`, //nolint:forcetypeassert // a test
				string(engineOf(s, log[3], "postgres")))
			quiet := s.with(func(c *events.Config) { c.Audit = false })
			_, err = quiet.Publish(s.Context(), s.event(events.WorkEnded, events.Ended{}))
			require.NoError(s, err)
			n, err := s.rdb.XLen(s.Context(), s.key("audit")).Result()
			require.NoError(s, err)
			require.Len(s, log, int(n))
		}},
		{"the audit tells when the check of whoever answers began, not another's", func(s *scene) {
			s.engage("")
			s.provision("r-1")
			d, a := s.request("r-2"), args("postgres")
			a.HashOwner = s.state().Owner
			require.Equal(s, events.Hit, s.begin(d, a).Verdict)
			between, err := s.rdb.Time(s.Context()).Result()
			require.NoError(s, err)
			found, err := s.rdb.XRange(s.Context(), s.key("events"), d.Entry, d.Entry).Result()
			require.NoError(s, err)
			again, err := events.Deliver(found[0], me) // slow, and so delivered once more
			require.NoError(s, err)
			require.Equal(s, events.Hit, s.begin(again, a).Verdict)
			v, err := s.bus.AnswerHit(s.Context(), d, a.Asked, map[string]string{"postgres": "p1"})
			require.NoError(s, err)
			require.Equal(s, events.Done, v)
			last, err := s.rdb.XRevRangeN(s.Context(), s.key("audit"), "+", "-", 1).Result()
			require.NoError(s, err)
			require.Equal(s, "reply", last[0].Values["k"])
			checked, err := strconv.ParseInt(last[0].Values["chk"].(string), 10, 64) //nolint:forcetypeassert // a test
			require.NoError(s, err)
			require.LessOrEqual(s, checked, between.UnixMicro())
			require.Equal(s, cont, last[0].Values["own"])
		}},
		{"what the guards begin with is read at once", func(s *scene) {
			stood, err := s.bus.Standing(s.Context(), alone())
			require.NoError(s, err)
			require.NotZero(s, stood.At)
			require.Equal(s, events.Standing{At: stood.At}, stood)
			s.engage("container")
			off := false
			_, err = s.bus.MirrorSwitch(s.Context(), &off, 1)
			require.NoError(s, err)
			s.provision("r-1")
			stood, err = s.bus.Standing(s.Context(), alone())
			require.NoError(s, err)
			require.Equal(s, events.SwitchOff, stood.Switch)
			require.Equal(s, s.state(), stood.Agent)
			require.Equal(s, task, stood.Agent.Task)
			sb, err := s.bus.Sandbox(s.Context(), agent, false)
			require.NoError(s, err)
			require.NotEmpty(s, stood.Record)
			require.Equal(s, sb.Engines, stood.Record)
			now, err := s.rdb.Time(s.Context()).Result()
			require.NoError(s, err)
			require.False(s, stood.At.After(now))
			require.NoError(s, s.rdb.HSet(s.Context(), s.key("record:"+agent), "redis", "{").Err())
			stood, err = s.bus.Standing(s.Context(), alone())
			require.NoError(s, err)
			require.Nil(s, stood.Record, "in part is not at all")
		}},
		{"the master switch", func(s *scene) {
			v, err := s.bus.MasterSwitch(s.Context())
			require.NoError(s, err)
			require.Equal(s, events.SwitchMissing, v)
			on, off := true, false
			says := func(value *bool, revision int64, want events.Switch) {
				s.Helper()
				v, err := s.bus.MirrorSwitch(s.Context(), value, revision)
				require.NoError(s, err)
				require.Equal(s, want, v)
				v, err = s.bus.MasterSwitch(s.Context())
				require.NoError(s, err)
				require.Equal(s, want, v)
			}
			says(nil, 0, events.SwitchUnset)
			says(&on, 7, events.SwitchOn)
			says(&off, 7, events.SwitchOff) // a program that knows no revisions changed it: the store is right
			says(&on, 1<<53-1, events.SwitchOn)
			says(&off, 1<<53-2, events.SwitchOn) // whoever read the store before comes too late
			says(nil, 0, events.SwitchOn)
			require.NoError(s, s.rdb.Del(s.Context(), s.key("flag:sandbox_db_enabled"), s.key("flag:sandbox_db_enabled:revision")).Err())
			says(&off, 3, events.SwitchOff)
			require.NoError(s, s.rdb.Del(s.Context(), s.key("flag:sandbox_db_enabled")).Err())
			says(nil, 2, events.SwitchUnset) // a revision without a value counts for nothing
		}},
	}
}

func engineOf(s *scene, m redis.XMessage, engine string) []byte {
	s.Helper()
	var out map[string]rawJSON
	s.decode(m.Values["p"].(string), &out) //nolint:forcetypeassert // a test
	return out[engine]
}

// engage2 engages the agent while another entry waits: nothing is finished.
func (s *scene) engage2() {
	s.Helper()
	s.publish(events.WorkStarted, events.Started{TaskID: task, Project: proj})
}

// first is the oldest entry of the stream.
func (s *scene) first() string {
	s.Helper()
	found, err := s.rdb.XRangeN(s.Context(), s.key("events"), "-", "+", 1).Result()
	require.NoError(s, err)
	require.NotEmpty(s, found)
	return found[0].ID
}
