package failpoint_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/worker"
	"github.com/roboco/sandboxd/worker/workertest"
)

// keeps is what the workers of a scenario with a pool are told: one ready container of each engine that the project has.
const keeps = "ROBOCO_SANDBOX_POOL=postgres=1,redis=1"

// Containers that were born for nobody, by label and by name.
const (
	poolLabel  = "roboco.sandbox.pool"
	poolPrefix = "roboco-sandbox-pool-"
)

func poolScenarios() []scenario {
	both, redis := []string{"postgres", "redis"}, []string{"redis"}
	ready := func(w *world) { w.keeping(func() {}) }
	claimed := func(w *world) {
		w.keeping(func() {
			w.begin("T-1")
			w.ask(nil, nil)
		})
	}
	return []scenario{
		{name: "pool filled", services: both, standing: lists{"postgres": {"vector"}, "redis": {"json"}}, pool: true, want: none()},
		{name: "claimed", services: both, pool: true, prepare: ready, live: askOf(nil)},
		{
			name: "claimed, one feature more", services: []string{"postgres"}, standing: lists{"postgres": {"vector"}}, pool: true,
			prepare: ready, live: askOf(lists{"postgres": {"citext"}}),
		},
		{name: "claimed dead", services: redis, pool: true, prepare: ready, act: func(w *world) {
			require.True(w.t, w.sim.Kill(w.idle()[0].ID, workertest.Restarts))
		}, live: askOf(nil)},
		{name: "claimed container ended", services: redis, pool: true, prepare: claimed, act: (*world).end, want: none()},
		{name: "pool taken up again", services: redis, pool: true, prepare: claimed, act: (*world).forget},
		{name: "claimed, lost and asked for", services: both, pool: true, prepare: claimed, act: func(w *world) {
			w.forget()
			w.ask(nil, nil)
		}},
		{name: "pool drained", services: redis, prepare: ready, want: none()},
		{name: "pool at the end", services: redis, pool: true, want: none(), ends: true, live: func(w *world, p *process, first bool) {
			if first {
				require.Eventually(w.t, func() bool { return p.hasEnded() || w.isReady() }, patience, 5*time.Millisecond, "the pool is not filled")
				_ = p.cmd.Process.Signal(syscall.SIGTERM)
			}
		}},
	}
}

// askOf asks once, of the first worker when it knows its pools: before that it would make what it is asked for.
func askOf(features lists) func(*world, *process, bool) {
	return func(w *world, p *process, first bool) {
		if !first {
			return
		}
		if !p.hasEnded() {
			w.awaitPass(p, "redis.lrange.before#1")
		}
		w.begin("T-1")
		w.ask(nil, features)
	}
}

// keeping runs a worker with a pool in this process, that nobody disturbs, while f goes on, and leaves what it keeps ready: when
// it ends another worker lives on this host, and takes nothing down either when it is gone.
func (w *world) keeping(f func()) {
	w.t.Helper()
	ctx := context.WithoutCancel(w.t.Context())
	host, err := w.runtime.HostID(ctx)
	require.NoError(w.t, err)
	full := func() { require.Eventually(w.t, w.isReady, patience, 5*time.Millisecond, "the pool is not filled") }
	w.beside(map[string]worker.PoolSize{"postgres": {Floor: 1, Ceiling: 1}, "redis": {Floor: 1, Ceiling: 1}}, func() {
		full()
		f()
		w.drained()
		full()
		_, err := w.bus.Keep(ctx, host, "another", patience)
		require.NoError(w.t, err)
	})
	_, err = w.bus.Unkeep(ctx, host, "another")
	require.NoError(w.t, err)
}

// isReady says that the pools hold what the project's services want.
func (w *world) isReady() bool { return len(w.wrongPool(w.t.Context(), w.services)) == 0 }

// idle lists the ready containers that nobody has been given, by their names.
func (w *world) idle() []container {
	return slices.DeleteFunc(w.sim.Containers(), func(c container) bool { return !isIdle(c) })
}

// swept demands that nothing is ready any more: the last worker of its host has ended well.
func (w *world) swept() {
	w.t.Helper()
	if w.sim != nil {
		require.Empty(w.t, w.idle(), "the last worker has left its pools")
	}
}

func isIdle(c container) bool { return strings.HasPrefix(c.Name, poolPrefix) }

// wrongPool: of each of these engines one container is ready, and stands in its pool; nothing else is in a pool.
func (w *world) wrongPool(ctx context.Context, ready []string) (wrong []string) {
	if w.sim == nil {
		return nil // no pools are kept on real engines here
	}
	stocked, err := w.stocked(ctx)
	if err != nil {
		return []string{err.Error()}
	}
	have := map[string]int{}
	idle := w.idle()
	for _, c := range idle {
		have[c.Labels["roboco.sandbox.engine"]]++
		if !slices.Contains(stocked, c.ID) {
			wrong = append(wrong, c.Name+" does not stand in its pool")
		}
		wrong = append(wrong, w.wrongIdle(ctx, c)...)
	}
	if len(stocked) != len(idle) {
		wrong = append(wrong, fmt.Sprintf("%d containers stand in pools, %d are ready", len(stocked), len(idle)))
	}
	want := map[string]int{}
	for _, e := range ready {
		want[e] = 1
	}
	if !maps.Equal(have, want) {
		wrong = append(wrong, fmt.Sprintf("%v are ready, not %v", have, want))
	}
	return wrong
}

// wrongIdle: a ready container lives its first life, is what its pool says, and nobody's.
func (w *world) wrongIdle(ctx context.Context, c container) (wrong []string) {
	e, _ := w.registry.Lookup(c.Labels["roboco.sandbox.engine"])
	var features []string
	if _, list, _ := strings.Cut(c.Labels[poolLabel], ":"); list != "" {
		features = strings.Split(list, ",")
	}
	if !c.Running || !c.FirstLife || len(c.Addrs) == 0 {
		return []string{c.Name + " does not live its first life"}
	}
	access := engines.Access{Addr: c.Addrs[0], Password: c.Env[engines.EnvPassword], AdminPassword: c.Env[engines.EnvAdminPassword]}
	if err := e.Probe(ctx, access); err != nil {
		wrong = append(wrong, fmt.Sprintf("%s does not answer: %v", c.Name, err))
	}
	if err := e.Verify(ctx, access, features); err != nil {
		wrong = append(wrong, fmt.Sprintf("%s is ready without its features: %v", c.Name, err))
	}
	known, err := w.bus.Claims(ctx, []string{c.ID})
	if err != nil || len(known) > 0 {
		wrong = append(wrong, fmt.Sprintf("%s is ready, and Redis has %+v of it (%v)", c.Name, known, err))
	}
	stored, err := w.store.Claims(ctx, []string{c.ID})
	if err != nil || len(stored) > 0 {
		wrong = append(wrong, fmt.Sprintf("%s is ready, and was claimed by %+v (%v)", c.Name, stored, err))
	}
	return wrong
}

// stocked are the IDs in all pools of this cell.
func (w *world) stocked(ctx context.Context) (ids []string, err error) {
	keys, err := w.rdb.Keys(ctx, "{"+w.cell+"}:pool:*").Result()
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		in, err := w.rdb.LRange(ctx, key, 0, -1).Result()
		if err != nil {
			return nil, err
		}
		ids = append(ids, in...)
	}
	return ids, nil
}
