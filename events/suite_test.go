package events_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/events/eventstest"
)

// The suite runs against a real Redis and against the embedded one. A scene is one test with a cell of its own.

const (
	agent = "be-dev-1"
	me    = "w1"
	other = "w2"
	cont  = "c0ffee@2026-01-02T03:04:05Z" // the agent's container
	task  = "T-1"
	proj  = "shop"
)

// scene is a bus in a cell of its own, with times short enough to wait for.
type scene struct {
	*testing.T
	bus   *events.Bus
	calls *redis.Client // the bus's own
	rdb   *redis.Client // the test's, which may do anything
	cell  string
	addr  string
	user  string // empty where the server knows no users
	n     int
}

func quick() events.Config {
	return events.Config{
		Lease: 10 * time.Second, ClaimIdle: 20 * time.Second, Park: 50 * time.Millisecond, TTL: time.Hour, ReplyTTL: time.Hour,
		Audit: true, Log: zerolog.Nop(),
	}
}

func newScene(t *testing.T, addr string, cfg events.Config) *scene {
	t.Helper()
	cfg.Cell = eventstest.Cell()
	s := &scene{T: t, cell: cfg.Cell, addr: addr}
	s.rdb, _ = eventstest.Clients(t, addr)
	s.allow(cfg.Cell, events.SystemACL(cfg.Cell))
	s.calls, s.bus = s.open(cfg)
	_, err := s.bus.Check(t.Context())
	require.NoError(t, err)
	return s
}

// allow makes a user with these rules, named and with the password given, where the server knows users.
func (s *scene) allow(name string, rules []string) {
	s.Helper()
	err := s.rdb.ACLSetUser(s.Context(), name, append([]string{"reset", "on", ">" + name}, rules...)...).Err()
	if err != nil && strings.Contains(err.Error(), "unknown command") {
		return // the embedded one
	}
	require.NoError(s, err)
	s.user = name
}

// open is a bus whose user may do what SystemACL says, and no more.
func (s *scene) open(cfg events.Config) (*redis.Client, *events.Bus) {
	calls := redis.NewClient(&redis.Options{Addr: s.addr, Username: s.user, Password: s.user, ContextTimeoutEnabled: true, ReadTimeout: 5 * time.Second})
	blocking := redis.NewClient(&redis.Options{Addr: s.addr, Username: s.user, Password: s.user, MaxRetries: -1})
	s.Cleanup(func() { _, _ = calls.Close(), blocking.Close() })
	return calls, events.New(calls, blocking, cfg)
}

// with is another bus on the same cell with other settings.
func (s *scene) with(change func(*events.Config)) *events.Bus {
	s.Helper()
	cfg := quick()
	change(&cfg)
	cfg.Cell = s.cell
	_, b := s.open(cfg)
	return b
}

type test struct {
	name string
	run  func(*scene)
}

func TestSuite(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB) string{"redis": eventstest.StartRedis, "embedded": eventstest.StartEmbedded} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr := start(t)
			for _, x := range slicesOf(publishTests(), beginTests(), glanceTests(), standingTests(), leaseTests(), fateTests(), replyTests(), consumeTests(), liveTests(),
				deadTests(), aclTests(), sealTests(), poolTests(), claimTests(), keeperTests(), projectTests()) {
				t.Run(x.name, func(t *testing.T) {
					t.Parallel()
					x.run(newScene(t, addr, quick()))
				})
			}
		})
	}
}

func slicesOf(lists ...[]test) (all []test) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

func (s *scene) key(name string) string { return "{" + s.cell + "}:" + name }

func data(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}

func (s *scene) event(kind events.Type, v any) events.Event {
	s.n++
	return events.Event{ID: fmt.Sprintf("e%d", s.n), Type: kind, Source: "test", Subject: agent, Data: data(v)}
}

func (s *scene) publish(kind events.Type, v any) events.Published {
	s.Helper()
	p, err := s.bus.Publish(s.Context(), s.event(kind, v))
	require.NoError(s, err)
	return p
}

// engage starts work, in a container or not, and finishes the entry.
func (s *scene) engage(owner string) {
	s.Helper()
	s.publish(events.WorkStarted, events.Started{TaskID: task, Project: proj, Owner: owner})
	s.finishNext()
}

func (s *scene) finishNext() {
	s.Helper()
	ok, err := s.bus.Finish(s.Context(), s.read(me))
	require.NoError(s, err)
	require.True(s, ok)
}

// request publishes a request and reads it.
func (s *scene) request(id string) events.Delivery {
	s.Helper()
	s.publish(events.SandboxRequested, events.Requested{RequestID: id, Role: "developer", Gateway: "gw"})
	return s.read(me)
}

// read takes the next entry as a consumer.
func (s *scene) read(name string) events.Delivery {
	s.Helper()
	found, err := s.rdb.XReadGroup(s.Context(), &redis.XReadGroupArgs{Group: "workers", Consumer: name, Streams: []string{s.key("events"), ">"}, Count: 1, Block: -1}).Result()
	require.NoError(s, err)
	d, err := events.Deliver(found[0].Messages[0], name)
	require.NoError(s, err)
	return d
}

// passes waits until a deadline is over on Redis's clock.
func (s *scene) passes(deadline time.Time) {
	s.Helper()
	s.eventually(func() bool {
		now, err := s.rdb.Time(s.Context()).Result()
		return err == nil && now.After(deadline.Add(2*time.Millisecond))
	}, "the deadline")
}

// claim gives an entry to a consumer, as XAUTOCLAIM would.
func (s *scene) claim(name, entry string) {
	s.Helper()
	require.NoError(s, s.rdb.XClaimJustID(s.Context(), &redis.XClaimArgs{Stream: s.key("events"), Group: "workers", Consumer: name, Messages: []string{entry}}).Err())
}

func want(engines ...string) (out []events.Want) {
	for _, e := range engines {
		name, features, _ := strings.Cut(e, "+")
		w := events.Want{Engine: name}
		if features != "" {
			w.Features = strings.Split(features, ",")
		}
		out = append(out, w)
	}
	return out
}

// args is what the guards see while the agent's container lives and the hash has no owner yet.
func args(asked ...string) events.BeginArgs {
	return events.BeginArgs{Asked: want(asked...), Set: want("postgres", "redis"), Seen: events.Tenancy{Task: task, Project: proj, Owner: cont}}
}

func (s *scene) begin(d events.Delivery, a events.BeginArgs) events.Begun {
	s.Helper()
	b, err := s.bus.Begin(s.Context(), d, a)
	require.NoError(s, err)
	return b
}

func entry(id string, b events.Begun, features ...string) events.Entry {
	return events.Entry{ID: id, Name: "n-" + id, Start: "s", Epoch: b.Epoch, Born: b.Born, Host: "h1", Features: features, Payload: data(map[string]string{"password": "pw-" + id})}
}

func (s *scene) record(d events.Delivery, b events.Begun, engine, id string, asked []events.Want, features ...string) events.Fencing {
	s.Helper()
	f, err := s.bus.Record(s.Context(), d, b.Epoch, engine, entry(id, b, features...), events.Created, "", asked)
	require.NoError(s, err)
	return f
}

func (s *scene) settle(d events.Delivery, epoch string, r *events.Refusal, asked []events.Want) events.Fencing {
	s.Helper()
	f, err := s.bus.Settle(s.Context(), d, epoch, r, asked)
	require.NoError(s, err)
	return f
}

// provision gives the agent the whole set, p1 and r1, owned by cont.
func (s *scene) provision(id string) events.Begun {
	s.Helper()
	d := s.request(id)
	a := args("postgres", "redis")
	a.HashOwner = s.state().Owner
	b := s.begin(d, a)
	require.Equal(s, events.Run, b.Verdict)
	require.Equal(s, events.Held, s.record(d, b, "postgres", "p1", a.Asked))
	require.Equal(s, events.Held, s.record(d, b, "redis", "r1", a.Asked))
	require.Equal(s, events.Held, s.settle(d, b.Epoch, nil, a.Asked))
	return b
}

func (s *scene) state() events.AgentState {
	s.Helper()
	a, err := s.bus.Agent(s.Context(), agent)
	require.NoError(s, err)
	return a
}

// terminal gives the one terminal reply of a request, which must be the last entry.
func (s *scene) terminal(id string) events.Reply {
	s.Helper()
	all, err := s.bus.Replies(s.Context(), agent, id, "")
	require.NoError(s, err)
	require.NotEmpty(s, all)
	for _, r := range all[:len(all)-1] {
		require.False(s, r.Terminal(), "a terminal entry before the last")
	}
	last := all[len(all)-1]
	require.True(s, last.Terminal(), "no terminal entry")
	return last
}

func (s *scene) drained() {
	s.Helper()
	n, err := s.rdb.XLen(s.Context(), s.key("events")).Result()
	require.NoError(s, err)
	require.Zero(s, n, "the stream is not empty")
	p, err := s.rdb.XPending(s.Context(), s.key("events"), "workers").Result()
	if err == nil {
		require.Zero(s, p.Count, "entries are pending")
	}
}

func (s *scene) eventually(f func() bool, msg string) {
	s.Helper()
	require.Eventually(s, f, time.Minute, 5*time.Millisecond, msg)
}

type rawJSON = json.RawMessage

func (s *scene) decode(raw string, into any) {
	s.Helper()
	require.NoError(s, json.Unmarshal([]byte(raw), into))
}
