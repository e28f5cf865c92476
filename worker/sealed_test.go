package worker_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/events/seal"
)

// rekey gives what is started from now on, the gateway's side included, these keys.
func (r *rig) rekey(names ...string) {
	r.t.Helper()
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = name + ":" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(name, 32)[:32]))
	}
	keys, err := seal.Parse(strings.Join(parts, ","))
	require.NoError(r.t, err)
	r.bcfg.Sealer = keys
	r.bus = r.newBus(r.t)
}

// A worker without the key says so, and touches nothing; with it, the sandbox is the same one.
func TestSealedSandboxOutlivesAWorkerWithoutTheKey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.rekey("k1")
	r.project("shop", []string{"redis"}, nil)
	_, stop := r.worker()
	slug := r.slug("a")
	r.start(slug, "T-1", "shop")
	first := r.request(slug, "redis")
	ids := r.ids(slug)
	stop()

	r.rekey("k2")
	w, stop := r.worker()
	refusal := r.refused(r.ask(slug, nil, nil)(), 8)
	require.False(t, refusal.Retryable)
	require.Contains(t, refusal.Message, "k1")
	require.Contains(t, refusal.Remediate, "ROBOCO_SANDBOX_SEAL_KEYS")
	_, err := w.JanitorPass(t.Context())
	require.NoError(t, err)
	require.Equal(t, ids, r.ids(slug))
	state, err := r.bus.Agent(t.Context(), slug)
	require.NoError(t, err)
	require.False(t, state.Leased)
	stop()

	r.rekey("k2", "k1")
	r.worker()
	again := r.request(slug, "redis")
	require.Equal(t, first["redis"].Password, again["redis"].Password)
	require.Equal(t, events.Reused, again["redis"].outcome)
	require.NoError(t, r.works(slug, again["redis"]))
	require.Equal(t, ids, r.ids(slug))
	r.quiet()
}
