package worker_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/worker"
)

// On the real container engine: what waited in the pools is reached under the agent's name, with its own password, and the
// pools fill again.
func TestPoolOnTheRealEngine(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(r *rig) {
		one := worker.PoolSize{Floor: 1, Ceiling: 1}
		r.cfg.Pool = map[string]worker.PoolSize{"postgres": one, "redis": one, "mongo": one}
		r.cfg.PoolTick = 200 * time.Millisecond
	})
	r.project("p", []string{"postgres", "redis", "mongo"}, map[string][]string{"postgres": {"vector"}})
	_, stop := r.worker()
	ready := func() (names []string) {
		for _, c := range r.containers("") {
			if strings.HasPrefix(c.Name, "roboco-sandbox-pool-") {
				names = append(names, c.Name)
			}
		}
		return names
	}
	a := r.slug("a")
	r.start(a, "T-1", "p")
	for range 2 {
		r.eventually(2*time.Minute, func() bool {
			keys, err := r.rdb.Keys(t.Context(), "{"+r.cfg.Cell+"}:pool:*").Result()
			return err == nil && len(keys) == 3 && len(ready()) == 3
		}, "the pools do not fill")
		began := time.Now()
		got := r.request(a)
		t.Logf("a whole set from the pools: %v", time.Since(began))
		for engine, g := range got {
			require.Equal(t, events.Pooled, g.outcome, engine)
		}
		require.NoError(t, r.works(a, got["redis"]))
		pg, _ := r.cfg.Engines.Lookup("postgres")
		c, err := r.runtime.Inspect(t.Context(), got["postgres"].Host)
		require.NoError(t, err)
		require.NoError(t, pg.Verify(t.Context(), engines.Access{Addr: c.Addrs[0], Password: got["postgres"].Password, AdminPassword: c.Env[engines.EnvAdminPassword]}, []string{"vector"}))
		require.NoError(t, pg.Probe(t.Context(), engines.Access{Addr: c.Addrs[0], Password: got["postgres"].Password}))
		r.end(a)
		r.eventually(time.Minute, func() bool { return len(r.containers("")) == len(ready()) }, "the end left something")
		r.start(a, "T-2", "p")
	}
	stop()
	require.Empty(t, r.containers(""), "the last worker of the host takes its pools down")
}
