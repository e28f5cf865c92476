package events_test

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/events"
)

// counter counts what goes to Redis: looks at reply streams, and standings.
type counter struct{ ranges, standings atomic.Int64 }

func (s *scene) count() *counter {
	c := &counter{}
	s.calls.AddHook(c)
	return c
}

func (*counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() == "get" { // not the greeting of a new connection
			c.standings.Add(1)
		}
		return next(ctx, cmds)
	}
}

func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.EqualFold(cmd.Name(), "xrange") {
			c.ranges.Add(1)
		}
		return next(ctx, cmd)
	}
}

// alone is a request that came along with no other.
func alone() events.Delivery { return events.Delivery{Event: events.Event{Subject: agent}} }

func standingTests() []test {
	return []test{
		{"what came along with others is read in one call, and anew when it is asked for again", func(s *scene) {
			s.engage("")
			for _, id := range []string{"r-1", "r-2", "r-3"} {
				s.publish(events.SandboxRequested, events.Requested{RequestID: id, Gateway: "gw"})
			}
			found, err := s.rdb.XReadGroup(s.Context(), &redis.XReadGroupArgs{Group: "workers", Consumer: me, Streams: []string{s.key("events"), ">"}, Count: 10, Block: -1}).Result()
			require.NoError(s, err)
			all, err := events.Along(found[0].Messages, me)
			require.NoError(s, err)
			require.Len(s, all, 3)
			c := s.count()
			for _, d := range all[:2] {
				stood, err := s.bus.Standing(s.Context(), d)
				require.NoError(s, err)
				require.Equal(s, task, stood.Agent.Task)
			}
			require.EqualValues(s, 1, c.standings.Load())
			s.publish(events.WorkStarted, events.Started{TaskID: "T-2", Project: proj})
			stood, err := s.bus.Standing(s.Context(), all[0])
			require.NoError(s, err)
			require.Equal(s, "T-2", stood.Agent.Task)
			require.EqualValues(s, 2, c.standings.Load())
			mine := all[2]
			mine.Event.Subject = "another"
			stood, err = s.bus.Standing(s.Context(), mine)
			require.NoError(s, err)
			require.Empty(s, stood.Agent.Task, "never another's")
		}},
		{"the end of what is followed from its start comes with its notice", func(s *scene) {
			s.engage("")
			s.provision("r-1")
			s.inbox()
			s.eventually(func() bool { return s.bus.Serves("gw") }, "the inbox")
			s.Cleanup(s.bus.Expect("gw", "r-2"))
			d := s.request("r-2")
			c := s.count()
			over := make(chan error, 1)
			var got []events.Reply
			go func() {
				over <- s.bus.Follow(s.Context(), agent, "r-2", "", func(r events.Reply) error {
					got = append(got, r)
					return nil
				})
			}()
			s.answers(events.Done, d, s.glance("redis"), "")
			require.NoError(s, <-over)
			require.Len(s, got, 1)
			require.JSONEq(s, `{"password":"pw-r1"}`, string(got[0].Engines["redis"].Payload))
			require.Zero(s, c.ranges.Load(), "it looks for itself")
		}},
		{"who expects another agent's request is brought nothing", func(s *scene) {
			s.engage("")
			s.provision("r-1")
			s.inbox()
			s.eventually(func() bool { return s.bus.Serves("gw") }, "the inbox")
			s.Cleanup(s.bus.Expect("gw", "r-2"))
			s.answers(events.Done, s.request("r-2"), s.glance("redis"), "")
			require.ErrorIs(s, s.bus.Follow(s.Context(), "somebody", "r-2", "", func(events.Reply) error { return nil }), events.ErrExpired)
		}},
	}
}
