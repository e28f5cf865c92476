package worker_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/events/eventstest"
	"github.com/roboco/sandboxd/state"
	"github.com/roboco/sandboxd/worker"
	"github.com/roboco/sandboxd/worker/docker"
)

// rig is a whole system but for the gateway: a real Redis, a real container engine, workers in this process.
type rig struct {
	t       *testing.T
	runtime *docker.Runtime
	redis   string
	store   state.Store
	bus     *events.Bus // as a gateway has it
	rdb     *redis.Client
	cfg     worker.Config
	bcfg    events.Config
	prefix  string // of every agent's slug here
	asked   string // the last request's ID
}

func newRig(t *testing.T, change ...func(*rig)) *rig {
	t.Helper()
	if testing.Short() {
		t.Skip("needs Docker: left out of the short tests")
	}
	rt, err := docker.Open(t.Context(), docker.Config{Host: os.Getenv("DOCKER_HOST"), Log: zerolog.Nop()})
	if err != nil {
		if os.Getenv("REQUIRE_DOCKER") == "1" {
			t.Fatal(err)
		}
		t.Skip("no container engine: ", err)
	}
	t.Cleanup(func() { _ = rt.Close() })
	r := prepare(t, eventstest.StartRedis(t), append([]func(*rig){func(r *rig) { r.runtime, r.cfg.Runtime = rt, rt }}, change...)...)
	t.Cleanup(r.sweep)
	return r
}

// prepare makes what every rig has, whatever its container engine is.
func prepare(t *testing.T, addr string, change ...func(*rig)) *rig {
	t.Helper()
	b := make([]byte, 4)
	_, _ = rand.Read(b)
	id := hex.EncodeToString(b)
	catalog := engines.Builtin()
	r := &rig{t: t, redis: addr, prefix: "t" + id}
	r.store = state.NewMemory(state.Catalog{Services: catalog.Names(), Features: catalog.Allowed()})
	r.bcfg = events.Config{Cell: "c" + id, Lease: 3 * time.Second, ClaimIdle: 4 * time.Second, Log: zerolog.Nop()}
	r.cfg = worker.Config{
		Store: r.store, Engines: catalog, Roles: []string{"developer", "qa"},
		Cell: r.bcfg.Cell, Network: "sandboxd-test-" + id, Enabled: true,
		Grace: time.Hour, JanitorInterval: time.Hour, Beat: 500 * time.Millisecond, Drain: 5 * time.Second,
		Log: zerolog.New(io.Discard),
	}
	if os.Getenv("TEST_LOG") != "" {
		r.cfg.Log = zerolog.New(zerolog.NewConsoleWriter()).With().Timestamp().Logger()
	}
	for _, f := range change {
		f(r)
	}
	r.bus = r.newBus(t)
	r.rdb = redis.NewClient(&redis.Options{Addr: r.redis})
	t.Cleanup(func() { _ = r.rdb.Close() })
	return r
}

func (r *rig) newBus(t *testing.T, hooks ...redis.Hook) *events.Bus {
	t.Helper()
	calls, blocking := redis.NewClient(&redis.Options{Addr: r.redis}), redis.NewClient(&redis.Options{Addr: r.redis})
	for _, h := range hooks {
		calls.AddHook(h)
	}
	t.Cleanup(func() { _ = calls.Close(); _ = blocking.Close() })
	bus := events.New(calls, blocking, r.bcfg)
	_, err := bus.Check(t.Context())
	require.NoError(t, err)
	return bus
}

// worker starts one more worker; stop ends it as SIGTERM would.
func (r *rig) worker(change ...func(*worker.Config)) (w *worker.Worker, stop func()) {
	r.t.Helper()
	cfg := r.cfg
	for _, f := range change {
		f(&cfg)
	}
	if cfg.Bus == nil {
		cfg.Bus = r.newBus(r.t)
	}
	w = worker.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				r.t.Errorf("worker: %v", err)
			}
		})
	}
	r.t.Cleanup(stop)
	return w, stop
}

// sweep removes what this rig's cell left, so that one failed test does not spoil the machine.
func (r *rig) sweep() {
	ctx := context.Background()
	for _, c := range r.containers("") {
		_ = r.runtime.Remove(ctx, c.ID, 0)
	}
	dockerCLI(r.t, "network", "rm", r.cfg.Network)
}

// containers lists what lives in this cell, of one agent or of all.
func (r *rig) containers(slug string) []engines.Container {
	labels := map[string]string{"roboco.sandbox": "1", "roboco.sandbox.cell": r.bcfg.Cell}
	if slug != "" {
		labels["roboco.sandbox.owner"] = "roboco-agent-" + slug
	}
	cs, err := r.runtime.List(context.Background(), labels)
	require.NoError(r.t, err)
	return cs
}

func (r *rig) ids(slug string) []string {
	var ids []string
	for _, c := range r.containers(slug) {
		ids = append(ids, c.ID)
	}
	return ids
}

func (r *rig) project(slug string, services []string, extensions map[string][]string) {
	r.t.Helper()
	_, _, err := r.store.PutProject(r.t.Context(), state.Project{Slug: slug, Name: slug, Services: services, Extensions: extensions})
	require.NoError(r.t, err)
}

func (r *rig) publish(typ events.Type, slug string, data any) events.Published {
	r.t.Helper()
	raw, err := json.Marshal(data)
	require.NoError(r.t, err)
	p, err := r.bus.Publish(context.Background(), events.Event{
		SpecVersion: "1.0", ID: uuid.NewString(), Type: typ, Source: "test", Subject: slug, Time: time.Now(), Data: raw,
	})
	require.NoError(r.t, err)
	return p
}

// start begins work as the gateway does: stored, then published.
func (r *rig) start(slug, task, project string) {
	r.t.Helper()
	require.NoError(r.t, r.store.StartWork(context.Background(), state.Engagement{Agent: slug, Task: task, Project: project}, state.Outgoing{EventID: uuid.NewString(), Event: json.RawMessage(`{}`)}))
	r.publish(events.WorkStarted, slug, events.Started{TaskID: task, Project: project})
}

func (r *rig) end(slug string) {
	r.t.Helper()
	_, err := r.store.EndWork(context.Background(), slug, "", state.Outgoing{EventID: uuid.NewString(), Event: json.RawMessage(`{}`)})
	require.NoError(r.t, err)
	r.publish(events.WorkEnded, slug, events.Ended{Verb: "i_am_done"})
}

// ask publishes a request and returns a function that waits for its terminal reply.
func (r *rig) ask(slug string, services []string, extensions map[string][]string) func() events.Reply {
	r.t.Helper()
	id := uuid.Must(uuid.NewV7()).String()
	r.asked = id
	r.publish(events.SandboxRequested, slug, events.Requested{RequestID: id, Role: "developer", Services: services, Extensions: extensions})
	return func() (last events.Reply) {
		ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
		defer cancel()
		err := r.bus.Follow(ctx, slug, id, "", func(p events.Reply) error { last = p; return nil })
		if err != nil {
			r.t.Errorf("request of %s: %v", slug, err)
		}
		return last
	}
}

// request asks and demands a sandbox.
func (r *rig) request(slug string, services ...string) map[string]got {
	r.t.Helper()
	return r.granted(r.ask(slug, services, nil)())
}

// got is one engine of a granted request.
type got struct {
	engines.Instance
	outcome  events.Outcome
	reason   string
	features []string
}

func (r *rig) granted(p events.Reply) map[string]got {
	r.t.Helper()
	require.Equal(r.t, events.StateOK, p.State, "%+v", p.Refusal)
	m := map[string]got{}
	for name, e := range p.Engines {
		g := got{outcome: e.Outcome, reason: e.Reason, features: e.Features}
		require.NoError(r.t, json.Unmarshal(e.Payload, &g.Instance))
		m[name] = g
	}
	return m
}

// refused demands a refusal by this guard.
func (r *rig) refused(p events.Reply, guard int) *events.Refusal {
	r.t.Helper()
	require.NotNil(r.t, p.Refusal, "state %s", p.State)
	require.Equal(r.t, guard, p.Refusal.Guard, p.Refusal.Message)
	return p.Refusal
}

// eventually polls until f says true.
func (r *rig) eventually(within time.Duration, f func() bool, what string, args ...any) {
	r.t.Helper()
	require.Eventually(r.t, f, within, 20*time.Millisecond, append([]any{what}, args...)...)
}

// quiet demands that nothing is left to do: an empty stream, nothing pending.
func (r *rig) quiet() {
	r.t.Helper()
	r.eventually(90*time.Second, func() bool {
		g, err := r.bus.Gauges(context.Background())
		return err == nil && g.StreamLength == 0 && g.Pending == 0
	}, "the stream is not drained")
}

// works logs in with what was handed out: set a key in redis, by the container's address.
func (r *rig) works(slug string, g got) error {
	addr := g.Host
	if c, err := r.runtime.Inspect(context.Background(), "roboco-sandbox-redis-"+slug); err == nil && len(c.Addrs) > 0 {
		addr = c.Addrs[0]
	}
	c := redis.NewClient(&redis.Options{Addr: addr, Password: g.Password})
	defer func() { _ = c.Close() }()
	if err := c.Set(context.Background(), "k", slug, 0).Err(); err != nil {
		return fmt.Errorf("write to the redis of %s: %w", slug, err)
	}
	return nil
}

// switchTo sets the master switch as an operator does.
func (r *rig) switchTo(value *bool) {
	r.t.Helper()
	f, err := r.store.SetFlag(r.t.Context(), "sandbox_db_enabled", value)
	require.NoError(r.t, err)
	_, err = r.bus.MirrorSwitch(r.t.Context(), f.Value, f.Revision)
	require.NoError(r.t, err)
}

func (r *rig) slug(name string) string { return r.prefix + "-" + name }

// agentContainer runs a container that stands for the agent's own, and returns a function that kills it.
func (r *rig) agentContainer(slug string) (id string, kill func()) {
	r.t.Helper()
	name := "roboco-agent-" + slug
	id = strings.TrimSpace(dockerCLI(r.t, "run", "-d", "--name", name, "--network", r.cfg.Network, "roboco-sandbox-agent:latest", "sleep", "600"))
	r.t.Cleanup(func() { dockerCLI(r.t, "rm", "-f", name) })
	return id, func() { dockerCLI(r.t, "kill", name) }
}
