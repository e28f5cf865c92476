package events_test

import (
	"context"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/events/eventstest"
)

// life is a worker and a gateway, each under a Redis user of its own, on a Redis that nobody else uses.
type life struct {
	*scene

	worker, gateway *events.Bus
	does            map[string]map[string]bool // the commands each has sent
}

func newLife(t *testing.T) *life {
	t.Helper()
	addr, _ := eventstest.StartOwnRedis(t)
	l := &life{scene: newScene(t, addr, quick()), does: map[string]map[string]bool{"worker": {}, "gateway": {}}}
	cfg := quick()
	cfg.Cell, cfg.Attempts, cfg.AgentCap, cfg.Max, cfg.Audit = l.cell, 2, 2, 10, false
	cfg.Lease, cfg.ClaimIdle = 200*time.Millisecond, 300*time.Millisecond
	l.allow("worker", events.WorkerACL(l.cell))
	_, l.worker = l.open(cfg)
	l.allow("gateway", events.GatewayACL(l.cell))
	_, l.gateway = l.open(cfg)
	return l
}

// as notes which commands a function has Redis do; nothing else runs meanwhile.
func (l *life) as(who string, f func()) {
	l.Helper()
	require.NoError(l, l.rdb.ConfigResetStat(l.Context()).Err())
	f()
	text, err := l.rdb.Info(l.Context(), "commandstats").Result()
	require.NoError(l, err)
	for _, m := range regexp.MustCompile(`cmdstat_([a-z|]+):.*rejected_calls=0`).FindAllStringSubmatch(text, -1) {
		l.does[who][m[1]] = true
	}
}

// says publishes as the gateway does.
func (l *life) says(kind events.Type, v any) {
	l.Helper()
	_, err := l.gateway.Publish(l.Context(), l.event(kind, v))
	require.NoError(l, err)
}

// works consumes until n entries have been handled, and a while longer for what was parked or left.
func (l *life) works(n int, h events.Handler) {
	l.Helper()
	done := make(chan struct{}, 100)
	w := l.consume(l.worker, events.ConsumeOptions{Name: me, Slots: 2, Drain: time.Second}, func(ctx context.Context, d events.Delivery) {
		defer func() { done <- struct{}{} }()
		h(ctx, d)
	})
	for range n {
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			require.FailNow(l, "nothing is delivered")
		}
	}
	l.stopped(w)
}

// handle does what a worker does with each kind of event.
func (l *life) handle(ctx context.Context, d events.Delivery) {
	b := l.worker
	if d.Event.Type != events.SandboxRequested {
		_, err := b.Finish(ctx, d)
		require.NoError(l, err)
		return
	}
	known, err := b.Agent(ctx, agent)
	require.NoError(l, err)
	a := args("postgres", "redis")
	a.HashOwner = known.Owner
	begun, err := b.Begin(ctx, d, a)
	require.NoError(l, err)
	switch begun.Verdict {
	case events.Run:
		l.provisions(ctx, d, begun, a.Asked)
	case events.Hit:
		_, err := b.AnswerHit(ctx, d, a.Asked, map[string]string{"postgres": begun.Record["postgres"].ID, "redis": begun.Record["redis"].ID})
		require.NoError(l, err)
	default: // finished there
	}
}

func (l *life) provisions(ctx context.Context, d events.Delivery, begun events.Begun, asked []events.Want) {
	b := l.worker
	f, err := b.Beat(ctx, d, begun.Epoch)
	require.NoError(l, err)
	require.Equal(l, events.Held, f)
	require.NoError(l, b.Tell(ctx, d, begun.Epoch, events.Progress{Stage: events.StageProbing}))
	l.pools(ctx, d, begun)
	for _, w := range asked {
		f, err := b.Record(ctx, d, begun.Epoch, w.Engine, entry(w.Engine+begun.Epoch, begun), events.Created, "", asked)
		require.NoError(l, err)
		require.Equal(l, events.Held, f)
	}
	f, err = b.Settle(ctx, d, begun.Epoch, nil, asked)
	require.NoError(l, err)
	require.Equal(l, events.Held, f)
}

// A whole life passes with the rights of a worker and of a gateway, each uses all that it is allowed, and neither is ever
// refused anything.
func TestUsersMayDoJustWhatTheyDo(t *testing.T) {
	t.Parallel()
	l := newLife(t)
	ctx := t.Context()
	for who, b := range map[string]*events.Bus{"worker": l.worker, "gateway": l.gateway} {
		l.as(who, func() {
			require.NoError(t, b.Ping(ctx))
			_, err := b.Check(ctx)
			require.NoError(t, err)
			_, err = b.MirrorSwitch(ctx, nil, 1)
			require.NoError(t, err)
			_, err = b.MasterSwitch(ctx)
			require.NoError(t, err)
		})
	}
	l.as("gateway", func() {
		l.says(events.WorkStarted, events.Started{TaskID: task, Project: proj, Owner: "container"})
		l.says(events.SandboxRequested, events.Requested{RequestID: "r-1", Role: "developer", Gateway: "gw"})
	})
	l.as("worker", func() { l.works(2, l.handle) })
	l.as("worker", func() { l.listens() })
	l.as("gateway", func() { l.reads() })
	l.as("worker", func() { l.hits() })
	l.as("worker", func() { l.cleans() })
	l.as("gateway", func() { l.says(events.WorkEnded, events.Ended{}) }) // what was handed out is taken away
	l.as("worker", func() { l.works(1, l.handle) })
	l.dies()
	l.as("gateway", func() { l.looksAfterLetters() })
	l.as("worker", func() { l.works(2, l.handle) })
	l.drained()

	for who, rules := range map[string][]string{"worker": events.WorkerACL(l.cell), "gateway": events.GatewayACL(l.cell)} {
		var used []string
		for command := range l.does[who] {
			// Of the test itself, of a connection's beginning, and of the client's own.
			if !slices.Contains([]string{"config|resetstat", "xgroup|createconsumer", "auth", "client|setinfo", "client|maint_notifications"}, command) {
				used = append(used, command)
			}
		}
		used = append(used, "info") // the look at the statistics is not in them
		slices.Sort(used)
		may := events.Allowed(rules)
		slices.Sort(may)
		require.Equal(t, may, slices.Compact(used), who)
	}
	log, err := l.rdb.ACLLog(ctx, 100).Result()
	require.NoError(t, err)
	for _, x := range log {
		require.Contains(t, []string{"client|setinfo", "client|maint_notifications"}, x.Object, "%s was refused: %s", x.Username, x.ClientInfo)
	}
}

// reads is what a gateway reads.
func (l *life) reads() {
	l.Helper()
	ctx := l.Context()
	inbox, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- l.gateway.RunInbox(inbox, "gw") }()
	var last events.Reply
	require.NoError(l, l.gateway.Follow(ctx, agent, "r-1", "", func(r events.Reply) error { last = r; return nil }))
	require.Len(l, last.Engines, 2)
	_, err := l.gateway.Replies(ctx, agent, "r-1", last.ID) // past the end all is asked
	require.NoError(l, err)
	time.Sleep(20 * time.Millisecond) // the inbox has begun its blocking read
	stop()
	require.NoError(l, <-ended)
	_, err = l.gateway.Workers(ctx)
	require.NoError(l, err)
	_, err = l.gateway.Sandbox(ctx, agent, true)
	require.NoError(l, err)
	all, err := l.gateway.Sandboxes(ctx)
	require.NoError(l, err)
	require.Len(l, all, 1)
	_, err = l.gateway.Agent(ctx, agent)
	require.NoError(l, err)
	_, err = l.gateway.Gauges(ctx)
	require.NoError(l, err)
	require.NoError(l, l.rdb.SAdd(ctx, l.key("waiting:"+agent), "1-1").Err()) // of an entry that is not there
	for range 3 {                                                             // past the agent's share the stream is asked what is true
		_, err = l.gateway.Publish(ctx, l.event(events.LogsRequested, events.LogsWanted{RequestID: "l-1", Lines: 1}))
	}
	require.ErrorIs(l, err, events.ErrFull)
}

// listens is a worker's wait for projects that change.
func (l *life) listens() {
	l.Helper()
	ctx, stop := context.WithCancel(l.Context())
	heard, ended := make(chan string, 2), make(chan error, 1)
	go func() { ended <- l.worker.ProjectChanges(ctx, func(slug string) { heard <- slug }) }()
	l.hearsOf(heard, "")
	require.NoError(l, l.gateway.AnnounceProject(ctx, proj))
	l.hearsOf(heard, proj)
	stop()
	require.NoError(l, <-ended)
}

// hits is a request that finds its sandbox, one that was answered and comes again, and one that is published by a worker.
func (l *life) hits() {
	l.Helper()
	ctx := l.Context()
	l.works(2, l.handle) // the logs
	_, err := l.worker.Publish(ctx, l.event(events.SandboxRequested, events.Requested{RequestID: "r-2", Role: "developer"}))
	require.NoError(l, err)
	l.add("v", "1", "id", "again", "type", "sandbox.requested", "subject", agent, "data", `{"request_id":"r-1","role":"developer"}`)
	l.works(2, l.handle)
	require.NoError(l, l.worker.SetOwned(ctx, agent, task, proj))
}

// cleans is what the janitor and the observer do.
func (l *life) cleans() {
	l.Helper()
	ctx := l.Context()
	owners, err := l.worker.Owners(ctx)
	require.NoError(l, err)
	require.Equal(l, map[string]string{agent: cont}, owners)
	stray := events.Found{Slug: agent, Engine: "mongo", ID: "m1", Epoch: "1", Born: "1-0", Tenancy: events.Tenancy{Task: task, Project: proj, Owner: cont}, FirstLife: true}
	present := events.Present{Task: task, Project: proj, Owner: cont}
	fate, err := l.worker.Revoke(ctx, stray, "", present)
	require.NoError(l, err)
	require.Equal(l, events.FateLost, fate)
	fate, err = l.worker.Adopt(ctx, stray, "", present, events.Entry{ID: "m1", Born: "1-0", Epoch: "1", Host: "h1", Payload: data("x")})
	require.NoError(l, err)
	require.Equal(l, events.FateAdopted, fate)
	require.NoError(l, l.rdb.XGroupCreateConsumer(ctx, l.key("events"), "workers", "dead").Err())
	l.eventually(func() bool { n, err := l.worker.SweepConsumers(ctx); return err == nil && n > 0 }, "swept")
	_, err = l.worker.Publish(ctx, l.event(events.AgentStopped, events.Stopped{Owner: cont}))
	require.NoError(l, err)
	l.works(1, l.handle)
}

// dies makes dead letters: what is no event, what was given up, and what always panics.
func (l *life) dies() {
	l.Helper()
	l.as("gateway", func() { l.says(events.WorkEnded, events.Ended{}) })
	l.add("nonsense", "1")
	l.as("worker", func() {
		l.works(2, func(context.Context, events.Delivery) { panic("a bug") })
	})
	l.as("worker", func() {
		_, err := l.worker.Publish(l.Context(), l.event(events.WorkEnded, events.Ended{}))
		require.NoError(l, err)
		taken := make(chan struct{})
		w := l.consume(l.worker, events.ConsumeOptions{Name: other, Slots: 1}, func(context.Context, events.Delivery) { close(taken) })
		<-taken
		l.stopped(w) // what it has not finished is handed back
		l.works(1, func(ctx context.Context, d events.Delivery) {
			_, err := l.worker.DeadLetter(ctx, d, "a test")
			require.NoError(l, err)
		})
	})
}

func (l *life) looksAfterLetters() {
	l.Helper()
	all, _, err := l.gateway.DeadLetters(l.Context(), "", 10)
	require.NoError(l, err)
	require.Len(l, all, 3)
	for _, x := range all {
		_, err := l.gateway.Letter(l.Context(), x.ID)
		require.NoError(l, err)
		if x.Event == nil {
			require.NoError(l, l.gateway.DropLetter(l.Context(), x.ID))
			continue
		}
		_, err = l.gateway.RetryLetter(l.Context(), x.ID)
		require.NoError(l, err)
	}
}

// denied asserts that a user is refused these commands, and that it is the user that they are refused to.
func (s *scene) denied(c *redis.Client, commands ...[]any) {
	s.Helper()
	for _, words := range commands {
		err := c.Do(s.Context(), words...).Err()
		require.Error(s, err, "%v", words)
		require.Regexp(s, "^NOPERM|ACL failure in script", err.Error(), "%v", words)
	}
}

// login is a client under a user of its own with these rules.
func (s *scene) login(name string, rules []string) *redis.Client {
	s.Helper()
	s.allow(s.cell+name, rules)
	c := redis.NewClient(&redis.Options{Addr: s.addr, Username: s.user, Password: s.user, DisableIdentity: true})
	s.Cleanup(func() { _ = c.Close() })
	return c
}

// dangerous are commands that nobody has.
func dangerous(s *scene) [][]any {
	return [][]any{
		{"FLUSHALL"},
		{"FLUSHDB"},
		{"KEYS", "*"},
		{"SCAN", "0"},
		{"CONFIG", "GET", "*"},
		{"ACL", "LIST"},
		{"ACL", "WHOAMI"},
		{"CLIENT", "LIST"},
		{"SCRIPT", "FLUSH"},
		{"FUNCTION", "LIST"},
		{"SHUTDOWN"},
		{"SAVE"},
		{"MONITOR"},
		{"REPLICAOF", "NO", "ONE"},
		{"DBSIZE"},
		{"RANDOMKEY"},
		{"SUBSCRIBE", "x"},
		{"PUBLISH", "x", "y"},
		{"MIGRATE", "h", "1", "k", "0", "1"},
		{"XTRIM", s.key("events"), "MAXLEN", "0"},
		{"XGROUP", "DESTROY", s.key("events"), "workers"},
		{"XSETID", s.key("events"), "9-9"},
		{"RENAME", s.key("events"), s.key("x")},
		{"DUMP", s.key("record:" + agent)},
		{"COPY", s.key("events"), s.key("x")},
	}
}

func aclTests() []test {
	return []test{
		{"users: an agent's reads its own replies, and can do nothing else", func(s *scene) {
			if s.user == "" {
				return // the embedded server knows no users
			}
			s.engage("")
			s.provision("r-1")
			c := s.login("-reader", events.ReaderACL(s.cell, agent))
			own := s.bus.ReplyStream(agent, "r-1")
			got, err := c.XRead(s.Context(), &redis.XReadArgs{Streams: []string{own, "0"}, Block: -1}).Result()
			require.NoError(s, err)
			require.Len(s, got[0].Messages, 2)
			s.denied(c, dangerous(s)...)
			for _, key := range []string{
				s.bus.ReplyStream("another", "r-1"), s.bus.ReplyStream(agent+"2", "r-1"), s.bus.ReplyStream("be-dev", "1:r-1"), s.key("events"), s.key("dead"),
				s.key("inbox:gw"), "{" + s.cell + "2}:reply:" + agent + ":r-1",
			} {
				s.denied(c, []any{"XREAD", "STREAMS", key, "0"}, []any{"XREAD", "STREAMS", own, key, "0", "0"})
			}
			for _, key := range []string{own, s.key("events")} {
				s.denied(c,
					[]any{"XADD", key, "*", "a", "b"}, []any{"XREADGROUP", "GROUP", "workers", "x", "STREAMS", key, ">"}, []any{"XCLAIM", key, "workers", "x", "0", "1-0"},
					[]any{"XAUTOCLAIM", key, "workers", "x", "0", "0"}, []any{"XACK", key, "workers", "1-0"}, []any{"DEL", key}, []any{"UNLINK", key}, []any{"XDEL", key, "1-0"},
					[]any{"PEXPIRE", key, "1"}, []any{"XRANGE", key, "-", "+"}, []any{"XLEN", key}, []any{"XINFO", "STREAM", key}, []any{"EXISTS", key},
					[]any{"EVAL", "return 1", "1", key}, []any{"TYPE", key}, []any{"XGROUP", "CREATE", key, "g", "0"},
				)
			}
			s.denied(c, []any{"HGETALL", s.key("record:" + agent)}, []any{"HGETALL", s.key("agent:" + agent)}, []any{"INFO"}, []any{"TIME"})
		}},
		{"users: an outside choreographer adds to the stream, and can do nothing else", func(s *scene) {
			if s.user == "" {
				return
			}
			s.engage("container")
			s.provision("r-1")
			c := s.login("-choreographer", events.ChoreographerACL(s.cell))
			require.NoError(s, c.XAdd(s.Context(), &redis.XAddArgs{Stream: s.key("events"), Values: []any{
				"id", "f-1", "type", "work.ended", "subject", agent, "data", `{"task_id":"T-1"}`,
			}}).Err())
			d := s.read(me)
			require.True(s, d.Foreign)
			s.denied(c, dangerous(s)...)
			s.denied(c,
				[]any{"XREAD", "STREAMS", s.key("events"), "0"}, []any{"XRANGE", s.key("events"), "-", "+"}, []any{"XDEL", s.key("events"), d.Entry},
				[]any{"XREADGROUP", "GROUP", "workers", "x", "STREAMS", s.key("events"), ">"}, []any{"DEL", s.key("events")},
				[]any{"XADD", s.key("dead"), "*", "a", "b"}, []any{"XADD", s.bus.ReplyStream(agent, "r-1"), "*", "a", "b"},
				[]any{"XADD", "{other}:events", "*", "a", "b"}, []any{"HSET", s.key("agent:" + agent), "owner", "x"}, []any{"EVAL", "return 1", "0"},
			)
		}},
		{"users: workers and gateways have nothing that is not theirs", func(s *scene) {
			if s.user == "" {
				return
			}
			worker, gateway := s.login("-worker", events.WorkerACL(s.cell)), s.login("-gateway", events.GatewayACL(s.cell))
			for _, c := range []*redis.Client{worker, gateway} {
				s.denied(c, dangerous(s)...)
				s.denied(c, []any{"GET", "{other}:flag:sandbox_db_enabled"}, []any{"SET", "x", "y"}, []any{"XADD", "{other}:events", "*", "a", "b"},
					[]any{"EVAL", "return redis.call('FLUSHALL')", "0"}, []any{"EVAL", "return redis.call('GET', KEYS[1])", "1", "x"})
			}
			s.denied(gateway,
				[]any{"XREADGROUP", "GROUP", "workers", "x", "STREAMS", s.key("events"), ">"}, []any{"XACK", s.key("events"), "workers", "1-0"},
				[]any{"XCLAIM", s.key("events"), "workers", "x", "0", "1-0"}, []any{"XAUTOCLAIM", s.key("events"), "workers", "x", "0", "0"})
		}},
	}
}
