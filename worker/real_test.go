package worker_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/events/eventstest"
	"github.com/roboco/sandboxd/state"
	"github.com/roboco/sandboxd/worker"
)

// The whole life of a sandbox: the first request makes the whole set and is answered by what it asked for, a later one
// is a hit, a superset is extended or replaced, an end takes all of it away.
func TestLife(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker()
	a := r.slug("a")
	r.project("p", []string{"postgres", "redis", "mongo"}, nil)
	r.start(a, "T-1", "p")

	first := r.request(a, "redis")
	require.Len(t, first, 1, "the reply holds exactly what was asked for")
	require.Equal(t, events.Created, first["redis"].outcome)
	require.Equal(t, "roboco-sandbox-redis-"+a, first["redis"].Host)
	require.NoError(t, r.works(a, first["redis"]))
	r.quiet()
	require.Len(t, r.containers(a), 3, "the whole opted set is made behind the reply")

	before := r.ids(a)
	all := r.request(a)
	require.Len(t, all, 3)
	for name, g := range all {
		require.Equal(t, events.Reused, g.outcome, name)
	}
	require.Equal(t, first["redis"].Instance, all["redis"].Instance)
	require.ElementsMatch(t, before, r.ids(a), "a hit makes nothing")

	wide := r.granted(r.ask(a, nil, map[string][]string{"postgres": {"vector", "uuid-ossp"}})())
	require.Equal(t, events.Replaced, wide["postgres"].outcome, "the bare image has no vector")
	require.NotEmpty(t, wide["postgres"].reason)
	require.Equal(t, []string{"uuid-ossp", "vector"}, wide["postgres"].features)
	require.NotEqual(t, all["postgres"].Password, wide["postgres"].Password)
	require.Equal(t, all["redis"].Instance, wide["redis"].Instance, "a healthy engine is left alone")

	wider := r.granted(r.ask(a, []string{"postgres"}, map[string][]string{"postgres": {"citext"}})())
	require.Equal(t, events.Extended, wider["postgres"].outcome)
	require.Equal(t, wide["postgres"].Password, wider["postgres"].Password)
	require.Equal(t, []string{"citext", "uuid-ossp", "vector"}, wider["postgres"].features, "earlier features never disappear")
	require.Len(t, r.containers(a), 3)

	r.end(a)
	r.eventually(30*time.Second, func() bool { return len(r.containers(a)) == 0 }, "an end removes everything")
	refusal := r.refused(r.ask(a, nil, nil)(), 2)
	require.Contains(t, refusal.Remediate, "give_me_work")
	r.quiet()
}

// Each look-up guard with its words; those that need no look-up are in guards_test.go.
func TestGuardsInOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker()
	a := r.slug("g")
	off := false
	r.switchTo(&off)
	require.Contains(t, r.refused(r.ask(a, nil, nil)(), 1).Remediate, "ROBOCO_SANDBOX_DB_ENABLED")
	_, err := r.store.SetFlag(t.Context(), "sandbox_db_enabled", nil)
	require.NoError(t, err)
	require.NoError(t, r.rdb.Del(t.Context(), "{"+r.bcfg.Cell+"}:flag:sandbox_db_enabled").Err(), "the mirror is lost")
	require.Contains(t, r.refused(r.ask(a, nil, nil)(), 2).Remediate, "give_me_work")
	r.start(a, "T-1", "nowhere")
	require.Contains(t, r.refused(r.ask(a, nil, nil)(), 3).Remediate, "sandbox_services")
	r.project("empty", []string{}, nil)
	r.start(a, "T-2", "empty")
	require.Contains(t, r.refused(r.ask(a, nil, nil)(), 3).Remediate, "sandbox_services")
	r.project("p", []string{"redis"}, nil)
	r.start(a, "T-3", "p")
	require.Contains(t, r.refused(r.ask(a, []string{"mongo"}, nil)(), 4).Remediate, "redis")
	require.Empty(t, r.containers(a), "a refusal makes nothing")
	r.quiet()
}

// Two requests of one agent through two workers: one set of containers, equal credentials.
func TestConcurrentRequestsShareOneProvision(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker()
	r.worker()
	a := r.slug("twins")
	r.project("p", []string{"redis", "mongo"}, nil)
	r.start(a, "T-1", "p")
	one, two, three := r.ask(a, nil, nil), r.ask(a, nil, nil), r.ask(a, []string{"redis"}, nil)
	x, y, z := r.granted(one()), r.granted(two()), r.granted(three())
	require.Equal(t, x["redis"].Instance, y["redis"].Instance)
	require.Equal(t, x["mongo"].Instance, y["mongo"].Instance)
	require.Equal(t, x["redis"].Instance, z["redis"].Instance)
	r.quiet()
	require.Len(t, r.containers(a), 2)
}

// One entry is delivered to two workers: the first hangs in the middle of its run and lets its lease run out. One
// container for each engine, one terminal reply, also after the first has woken up again.
func TestOneEntryTwoWorkers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	stuck := &stuckRuntime{Runtime: r.cfg.Runtime, wake: make(chan struct{})}
	wake := sync.OnceFunc(func() { close(stuck.wake) })
	r.worker(func(c *worker.Config) { c.Runtime, c.Beat, c.Slots = stuck, time.Hour, 1 })
	t.Cleanup(wake) // before the worker is stopped
	a := r.slug("two")
	r.project("p", []string{"redis", "mongo"}, nil)
	r.start(a, "T-1", "p")
	wait := r.ask(a, nil, nil)
	r.eventually(30*time.Second, func() bool { return len(r.containers(a)) == 2 }, "nothing was made")
	r.worker()
	got := r.granted(wait())
	require.Len(t, got, 2)
	wake()
	r.quiet()
	r.eventually(30*time.Second, func() bool { return stuck.started.Load() == 2 }, "the first worker never woke up")
	require.Len(t, r.containers(a), 2, "one container for each engine")
	replies, err := r.bus.Replies(t.Context(), a, r.asked, "")
	require.NoError(t, err)
	terminal := 0
	for _, p := range replies {
		if p.Terminal() {
			terminal++
		}
	}
	require.Equal(t, 1, terminal)
	again := r.request(a)
	require.Equal(t, got["redis"].Instance, again["redis"].Instance)
	require.Equal(t, got["mongo"].Instance, again["mongo"].Instance)
}

// A name that is taken by somebody else's container: an error that names it; the stranger lives.
func TestStrangerIsNamedAndSpared(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker()
	a := r.slug("s")
	name := "roboco-sandbox-redis-" + a
	id := strings.TrimSpace(dockerCLI(t, "run", "-d", "--name", name, "roboco-sandbox-agent:latest", "sleep", "600"))
	t.Cleanup(func() { dockerCLI(t, "rm", "-f", name) })
	r.project("p", []string{"redis"}, nil)
	r.start(a, "T-1", "p")
	refusal := r.refused(r.ask(a, nil, nil)(), 8)
	require.Contains(t, refusal.Message, name)
	require.False(t, refusal.Retryable)
	r.end(a)
	r.quiet()
	c, err := r.runtime.Inspect(t.Context(), id)
	require.NoError(t, err)
	require.True(t, c.Running)
}

// The agent's container dies without a word: its sandbox is gone in seconds. A new one of that name never inherits.
func TestOwnerDies(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker()
	r.worker()
	a := r.slug("o")
	require.NoError(t, r.runtime.EnsureNetwork(t.Context(), r.cfg.Network))
	_, kill := r.agentContainer(a)
	r.project("p", []string{"redis"}, nil)
	r.start(a, "T-1", "p")
	first := r.request(a)
	kill()
	r.eventually(30*time.Second, func() bool { return len(r.containers(a)) == 0 }, "the sandbox outlives its owner")
	refusal := r.refused(r.ask(a, nil, nil)(), 2)
	require.Contains(t, refusal.Remediate, "give_me_work")

	dockerCLI(t, "start", "roboco-agent-"+a)
	second := r.request(a)
	require.NotEqual(t, first["redis"].Password, second["redis"].Password, "another owner never inherits")
	r.quiet()
}

// Under another task the old data is never seen, with no end in between.
func TestNextTaskGetsAFreshSandbox(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker()
	a := r.slug("n")
	r.project("p", []string{"redis"}, nil)
	r.project("q", []string{"redis"}, nil)
	r.start(a, "T-1", "p")
	first := r.request(a)
	require.NoError(t, r.works(a, first["redis"]))
	r.start(a, "T-2", "q")
	second := r.request(a)
	require.NotEqual(t, first["redis"].Password, second["redis"].Password)
	r.quiet()
	require.Len(t, r.containers(a), 1)
}

// Only what is dead is replaced; a restart counts as dead, for it empties a tmpfs.
func TestOnlyTheDeadIsReplaced(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker()
	a := r.slug("d")
	r.project("p", []string{"redis", "mongo"}, nil)
	r.start(a, "T-1", "p")
	first := r.request(a)
	r.quiet()
	dockerCLI(t, "restart", "-t", "0", "roboco-sandbox-redis-"+a)
	second := r.request(a)
	require.Equal(t, events.Replaced, second["redis"].outcome)
	require.NotEqual(t, first["redis"].Password, second["redis"].Password)
	require.Equal(t, first["mongo"].Instance, second["mongo"].Instance)
	dockerCLI(t, "rm", "-f", "roboco-sandbox-mongo-"+a)
	third := r.request(a)
	require.Equal(t, events.Replaced, third["mongo"].outcome)
	require.Equal(t, second["redis"].Instance, third["redis"].Instance)
	r.quiet()
}

// An image whose command fails: an error with exit code and log tail, nothing left behind.
func TestEarlyExitIsAnErrorAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(r *rig) {
		e, _ := r.cfg.Engines.Lookup("redis")
		plain := e.Describe
		e.Describe = func(o engines.Order) engines.Spec {
			s := plain(o)
			s.Entrypoint, s.Cmd = []string{"sh", "-c", "echo cannot go on with $ROBOCO_SANDBOX_PASSWORD; exit 3"}, nil
			return s
		}
		r.cfg.Engines = engines.Registry{e}
	})
	r.worker()
	a := r.slug("x")
	r.project("p", []string{"redis"}, nil)
	r.start(a, "T-1", "p")
	refusal := r.refused(r.ask(a, nil, nil)(), 8)
	require.Contains(t, refusal.Message, "code 3")
	require.Contains(t, refusal.Message, "cannot go on with ********")
	r.quiet()
	require.Empty(t, r.containers(a))
}

// Everything that Redis knew is lost while three sandboxes live: all live on, with the same credentials.
func TestFlushLosesNoSandbox(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(r *rig) {
		r.cfg.Grace = time.Millisecond
		r.redis, _ = eventstest.StartOwnRedis(t)
	})
	w, _ := r.worker()
	r.worker()
	r.project("p", []string{"redis", "mongo"}, nil)
	slugs := []string{r.slug("f1"), r.slug("f2"), r.slug("f3")}
	before := map[string]map[string]got{}
	for _, a := range slugs {
		r.start(a, "T-1", "p")
		before[a] = r.request(a)
	}
	r.quiet()
	require.NoError(t, r.rdb.FlushAll(t.Context()).Err())
	r.eventually(60*time.Second, func() bool {
		_, err := w.JanitorPass(context.Background())
		all, lerr := r.bus.Sandboxes(context.Background())
		n := 0
		for _, x := range all {
			n += len(x.Engines)
		}
		return err == nil && lerr == nil && n == 6
	}, "not every sandbox was adopted")
	for _, a := range slugs {
		after := r.request(a)
		for name := range before[a] {
			require.Equal(t, before[a][name].Instance, after[name].Instance, "%s of %s", name, a)
			require.Equal(t, events.Reused, after[name].outcome)
		}
	}
	r.quiet()
}

// A listing that fails removes nothing; and cleaning up goes on with the switch off.
func TestJanitor(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(r *rig) { r.cfg.Grace = time.Millisecond })
	var broken sync.Map
	w, _ := r.worker(func(c *worker.Config) { c.Runtime = &deafRuntime{Runtime: r.cfg.Runtime, broken: &broken} })
	a := r.slug("j")
	r.project("p", []string{"redis"}, nil)
	r.start(a, "T-1", "p")
	r.request(a)
	r.quiet()

	orphan := r.ids(a)[0]
	require.NoError(t, r.rdb.Del(t.Context(), "{"+r.bcfg.Cell+"}:record:"+a).Err(), "its time is up")
	broken.Store("agents", true)
	_, err := w.JanitorPass(t.Context())
	require.Error(t, err)
	require.Equal(t, []string{orphan}, r.ids(a), "a listing failed: nothing is removed in that pass")
	broken.Delete("agents")

	off := false
	r.switchTo(&off)
	n, err := w.JanitorPass(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Empty(t, r.ids(a))
}

// Switched off with a live sandbox, then the work ends: removed all the same.
func TestEndIsServedWithTheSwitchOff(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker()
	a := r.slug("off")
	r.project("p", []string{"redis"}, nil)
	r.start(a, "T-1", "p")
	r.request(a)
	off := false
	r.switchTo(&off)
	r.end(a)
	r.eventually(30*time.Second, func() bool { return len(r.containers(a)) == 0 }, "switching off leaks")
}

// An answer that the container engine did not give is never taken for a death.
func TestUnknownIsARetryableRefusal(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var broken sync.Map
	r.worker(func(c *worker.Config) { c.Runtime = &deafRuntime{Runtime: r.cfg.Runtime, broken: &broken} })
	a := r.slug("u")
	r.project("p", []string{"redis"}, nil)
	r.start(a, "T-1", "p")
	first := r.request(a)
	broken.Store("inspect", true)
	refusal := r.refused(r.ask(a, nil, nil)(), 8)
	require.True(t, refusal.Retryable)
	require.Positive(t, refusal.RetryAfterMS)
	broken.Delete("inspect")
	require.Equal(t, first["redis"].Instance, r.request(a)["redis"].Instance)
}

// Postgres out of reach is guard 8, names it, and may be tried again.
func TestStateStoreAway(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker(func(c *worker.Config) { c.Store = awayStore{c.Store} })
	a := r.slug("db")
	r.publish(events.WorkStarted, a, events.Started{TaskID: "T-1", Project: "p"})
	refusal := r.refused(r.ask(a, nil, nil)(), 8)
	require.True(t, refusal.Retryable)
	require.Contains(t, refusal.Message, "Postgres")
}

// deafRuntime is a container engine of which parts do not answer.
type deafRuntime struct {
	worker.Runtime
	broken *sync.Map
}

func (d *deafRuntime) Inspect(ctx context.Context, id string) (engines.Container, error) {
	if _, ok := d.broken.Load("inspect"); ok {
		return engines.Container{}, engines.ErrUnavailable
	}
	return d.Runtime.Inspect(ctx, id)
}

func (d *deafRuntime) ListNamed(ctx context.Context, prefix string) ([]engines.Container, error) {
	if _, ok := d.broken.Load("agents"); ok {
		return nil, engines.ErrUnavailable
	}
	return d.Runtime.ListNamed(ctx, prefix)
}

// stuckRuntime hangs before it starts a container, until it is woken up.
type stuckRuntime struct {
	worker.Runtime
	wake    chan struct{}
	started atomic.Int32
}

func (s *stuckRuntime) Start(ctx context.Context, id string) error {
	<-s.wake
	defer s.started.Add(1)
	return s.Runtime.Start(ctx, id)
}

// awayStore is a state store that cannot be reached for projects.
type awayStore struct{ worker.Store }

func (awayStore) Project(context.Context, string) (state.Project, error) {
	return state.Project{}, state.ErrUnavailable
}
