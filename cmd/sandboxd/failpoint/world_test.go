package failpoint_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"path/filepath"
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
	"github.com/roboco/sandboxd/state/statetest"
	"github.com/roboco/sandboxd/worker"
	"github.com/roboco/sandboxd/worker/workertest"
	"github.com/roboco/sandboxd/worker/workertest/simwire"
)

// accept bounds how long a request may wait for a worker: a case is no place to be late.
const accept = patience

// times of a case, as its processes are told them.
type times struct{ lease, janitor, grace time.Duration }

// config is the bus's configuration with these times; the processes compute the same.
func (x times) config(cell string) events.Config {
	return events.Config{
		Cell: cell, Lease: x.lease, ClaimIdle: x.lease * 7 / 6, Park: x.lease / 6, Accept: accept, Audit: true, Log: zerolog.Nop(),
	}
}

// world is one case's own system: a cell, a database, a container engine that outlives every process, and whatever
// sandboxd processes it starts.
type world struct {
	t        *testing.T
	cell     string
	slug     string // of the one agent
	folder   string
	times    times
	sim      *workertest.Sim // nil where the engine is real
	runtime  worker.Runtime  // the engine, simulated or real
	registry engines.Registry
	network  string
	store    state.Store
	bus      *events.Bus // as a gateway has it
	rdb      *redis.Client
	db       string // the database's URL
	env      []string

	mu       sync.Mutex
	asked    map[string]workertest.Asked
	answers  map[string][]events.State // by request ID: how it may end
	audit    []redis.XMessage          // of before a flush
	garbage  int64                     // undecodable entries that were sent
	stranger string
	task     string
	services []string // of the project
	ready    []string // engines of which one container is to be ready in the end
}

// newWorld makes a system on a simulated engine, in which nothing runs yet.
func newWorld(t *testing.T, slow bool) *world {
	t.Helper()
	sim := workertest.NewSim(simConfig(slow))
	t.Cleanup(sim.Close)
	if slow {
		sim.SetOdds(0, 1, 0) // every image is pulled
	}
	w := &world{
		t: t, cell: eventstest.Cell(), slug: "a1", folder: t.TempDir(), sim: sim, runtime: sim, registry: workertest.Engines(sim),
		network: "sim", times: times{900 * time.Millisecond, 250 * time.Millisecond, 700 * time.Millisecond},
	}
	socket := filepath.Join(w.folder, "engine")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	served, ctx := make(chan error, 1), t.Context() // its end precedes the cleanups
	go func() { served <- simwire.Serve(ctx, l, sim) }()
	t.Cleanup(func() { require.NoError(t, <-served) })
	w.connect()
	w.env = append(w.env, "SANDBOXD_FAILPOINT_ENGINE="+socket)
	return w
}

// connect gives the world its stores, and the environment of its processes.
func (w *world) connect() {
	w.t.Helper()
	w.asked, w.answers = map[string]workertest.Asked{}, map[string][]events.State{}
	addr := needContainers(w.t)
	w.db = statetest.StartPostgres(w.t)
	var err error
	w.store, err = state.OpenPostgres(w.t.Context(), state.PostgresConfig{
		URL: w.db, Timeout: 20 * time.Second, Catalog: state.Catalog{Services: w.registry.Names(), Features: w.registry.Allowed()},
	})
	require.NoError(w.t, err)
	w.t.Cleanup(w.store.Close)
	w.bus, w.rdb = w.newBus(addr)
	w.t.Cleanup(func() { // every look at a world goes over all keys that there are
		ctx := context.WithoutCancel(w.t.Context())
		require.NoError(w.t, w.rdb.Unlink(ctx, w.rdb.Keys(ctx, "{"+w.cell+"}:*").Val()...).Err())
	})
	w.env = append(cleanEnviron(),
		"ROBOCO_REDIS_URL=redis://"+addr, "ROBOCO_DATABASE_URL="+w.db, "ROBOCO_SANDBOX_DB_ENABLED=true",
		"ROBOCO_SANDBOX_CELL="+w.cell, "ROBOCO_SANDBOX_NETWORK="+w.network, "ROBOCO_SANDBOX_LOG_LEVEL=debug",
		"ROBOCO_SANDBOX_JANITOR_INTERVAL="+w.times.janitor.String(), "ROBOCO_SANDBOX_GRACE="+w.times.grace.String(),
		"ROBOCO_SANDBOX_ACCEPT_TIMEOUT="+accept.String(), "ROBOCO_SANDBOX_DRAIN=2s",
		"ROBOCO_SANDBOX_WORKER_LISTEN=127.0.0.1:0", "SANDBOXD_FAILPOINT_LEASE="+w.times.lease.String(),
	)
}

func simConfig(slow bool) workertest.SimConfig {
	c := workertest.SimConfig{Seed: 1, Jitter: time.Millisecond, ReadyFrom: time.Millisecond, ReadyTo: 5 * time.Millisecond}
	if slow { // long enough for a heartbeat, and for a second request to find the lease taken
		c.ReadyFrom, c.ReadyTo, c.PullTo = 600*time.Millisecond, 601*time.Millisecond, 50*time.Millisecond
	}
	return c
}

func (w *world) newBus(addr string) (*events.Bus, *redis.Client) {
	calls, blocking := eventstest.Clients(w.t, addr)
	bus := events.New(calls, blocking, w.times.config(w.cell))
	_, err := bus.Check(w.t.Context())
	require.NoError(w.t, err)
	return bus, calls
}

// undisturbed runs a worker in this process while f goes on, and until all that it published is done.
func (w *world) undisturbed(f func()) {
	w.t.Helper()
	w.beside(nil, f)
}

// beside is undisturbed with a worker that keeps ready containers.
func (w *world) beside(pool map[string]worker.PoolSize, f func()) {
	w.t.Helper()
	bus, _ := w.newBus(w.rdb.Options().Addr)
	worker := worker.New(worker.Config{
		Bus: bus, Store: w.store, Engines: w.registry, Runtime: w.runtime, Roles: []string{"developer", "qa"},
		Cell: w.cell, Network: w.network, Enabled: true, Grace: w.times.grace, JanitorInterval: w.times.janitor, Beat: w.times.lease / 3,
		Drain: 2 * time.Second, Pool: pool, PoolTick: w.times.lease / 3, Log: zerolog.New(io.Discard),
	})
	ctx, stop := context.WithCancel(context.WithoutCancel(w.t.Context()))
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx) }()
	defer func() {
		stop()
		require.NoError(w.t, <-done)
	}()
	f()
	w.drained()
}

// drained waits until the stream and its pending list are empty.
func (w *world) drained() {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		g, err := w.bus.Gauges(context.Background())
		return err == nil && g.StreamLength == 0 && g.Pending == 0
	}, patience, 10*time.Millisecond, "the stream is not drained")
}

// project makes p, which is opted into these services.
func (w *world) project(services []string, features map[string][]string) {
	w.t.Helper()
	w.services = services
	_, _, err := w.store.PutProject(w.t.Context(), state.Project{Slug: "p", Services: services, Extensions: features})
	require.NoError(w.t, err)
}

// publish says that something happened to the agent.
func (w *world) publish(id string, typ events.Type, data any) {
	w.t.Helper()
	_, err := w.bus.Publish(w.t.Context(), w.event(id, typ, data))
	require.NoError(w.t, err)
}

func (w *world) event(id string, typ events.Type, data any) events.Event {
	w.t.Helper()
	raw, err := json.Marshal(data)
	require.NoError(w.t, err)
	return events.Event{SpecVersion: "1.0", ID: id, Type: typ, Source: "test", Subject: w.slug, Time: time.Now().UTC(), Data: raw}
}

// begin starts work as a gateway does: stored, published, noted.
func (w *world) begin(task string) {
	w.t.Helper()
	id := uuid.NewString()
	out := state.Outgoing{EventID: id, Event: json.RawMessage(`{}`)}
	require.NoError(w.t, w.store.StartWork(w.t.Context(), state.Engagement{Agent: w.slug, Task: task, Project: "p"}, out))
	w.publish(id, events.WorkStarted, events.Started{TaskID: task, Project: "p"})
	require.NoError(w.t, w.store.Published(w.t.Context(), id))
	w.task = task
}

// end ends it likewise.
func (w *world) end() {
	w.t.Helper()
	id := uuid.NewString()
	_, err := w.store.EndWork(w.t.Context(), w.slug, "", state.Outgoing{EventID: id, Event: json.RawMessage(`{}`)})
	require.NoError(w.t, err)
	w.publish(id, events.WorkEnded, events.Ended{Verb: "i_am_done"})
	require.NoError(w.t, w.store.Published(w.t.Context(), id))
}

// ask publishes a request, which may end in these states; ok when none is given.
func (w *world) ask(services []string, features map[string][]string, may ...events.State) {
	w.t.Helper()
	id := uuid.Must(uuid.NewV7()).String()
	w.expect(id, may)
	w.publish(id, events.SandboxRequested, events.Requested{RequestID: id, Role: "developer", Services: services, Extensions: features})
}

// askLogs publishes a request for logs.
func (w *world) askLogs() {
	w.t.Helper()
	id := uuid.Must(uuid.NewV7()).String()
	w.expect(id, nil)
	w.publish(id, events.LogsRequested, events.LogsWanted{RequestID: id, Lines: 10})
}

func (w *world) expect(request string, may []events.State) {
	if len(may) == 0 {
		may = []events.State{events.StateOK}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers[request] = may
	owner := w.owner()
	if owner == "" {
		owner = events.OwnerLease
	}
	w.asked[request] = workertest.Asked{Task: w.task, Owner: owner}
}

// owner is the agent's own container, or "".
func (w *world) owner() string {
	if w.sim == nil {
		return ""
	}
	return w.sim.AgentOwner(w.slug)
}

// sandbox makes what the project is opted into.
func (w *world) sandbox(features map[string][]string) {
	w.undisturbed(func() {
		w.begin("T-1")
		w.ask(nil, features)
		w.drained()
	})
}

// forget is what FLUSHALL is to this cell: Redis loses all that it knew of it. The audit is kept for the judge.
func (w *world) forget() {
	w.t.Helper()
	ctx := w.t.Context()
	w.mu.Lock()
	defer w.mu.Unlock()
	prefix := "{" + w.cell + "}:"
	marks, err := w.rdb.XRange(ctx, prefix+"audit", "-", "+").Result()
	require.NoError(w.t, err)
	keys, err := w.rdb.Keys(ctx, prefix+"*").Result()
	require.NoError(w.t, err)
	require.NoError(w.t, w.rdb.Del(ctx, keys...).Err())
	now, err := w.rdb.Time(ctx).Result()
	require.NoError(w.t, err)
	w.audit = append(append(w.audit, marks...), flushMark(now))
	w.answers = map[string][]events.State{}
}

// container puts up a container of ours as a worker would have made it, older than any grace is not: its labels can be changed.
func (w *world) container(engine, name string, running bool, change func(labels map[string]string)) string {
	w.t.Helper()
	e, ok := w.registry.Lookup(engine)
	require.True(w.t, ok)
	epoch := time.Now().UnixMicro()
	labels := map[string]string{
		"roboco.sandbox": "1", "roboco.sandbox.owner": "roboco-agent-" + w.slug, "roboco.sandbox.cell": w.cell, "roboco.sandbox.engine": engine,
		"roboco.sandbox.epoch": jsonNumber(epoch), "roboco.sandbox.born": jsonNumber(epoch/1000) + "-0", "roboco.sandbox.project": "p",
		"roboco.sandbox.task": w.task, "roboco.sandbox.owner-id": events.OwnerLease,
	}
	if change != nil {
		change(labels)
	}
	spec := e.Describe(engines.Order{Image: e.Bare, Password: uuid.NewString(), AdminPassword: uuid.NewString()})
	id, err := w.sim.Create(w.t.Context(), engines.Launch{Spec: spec, Name: name, Labels: labels, Network: "sim", Memory: 64 << 20})
	require.NoError(w.t, err)
	if !running {
		return id
	}
	require.NoError(w.t, w.sim.Start(w.t.Context(), id))
	c, err := w.sim.Inspect(w.t.Context(), id)
	require.NoError(w.t, err)
	access := engines.Access{Addr: c.Addrs[0], Password: c.Env[engines.EnvPassword], AdminPassword: c.Env[engines.EnvAdminPassword]}
	require.Eventually(w.t, func() bool { return e.Activate(w.t.Context(), access, nil) == nil }, patience, time.Millisecond)
	return id
}

func jsonNumber(n int64) string { b, _ := json.Marshal(n); return string(b) }

// spoil adds an entry that nobody can read.
func (w *world) spoil() {
	w.t.Helper()
	w.garbage++
	require.NoError(w.t, w.rdb.XAdd(w.t.Context(), &redis.XAddArgs{Stream: "{" + w.cell + "}:events", Values: []any{"event", "{"}}).Err())
}
