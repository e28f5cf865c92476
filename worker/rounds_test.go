package worker_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/worker/workertest"
)

// A request right after an end never gets the ended sandbox: 500 rounds of end and request without a pause, through two
// workers. The container engine is simulated, for the number; cmd/sandboxd does the same on a real one, fewer times.
func TestRequestRightAfterAnEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(r *rig) {
		sim := workertest.NewSim(workertest.SimConfig{Seed: 1})
		t.Cleanup(func() { sim.Close() })
		p := workertest.NewProcess("rounds")
		r.cfg.Runtime, r.cfg.Engines = p.Runtime(sim), workertest.Engines(p.Wire(sim))
		r.cfg.StopGrace = time.Millisecond
	})
	r.worker()
	r.worker()
	a := r.slug("rounds")
	r.project("p", []string{"redis"}, nil)
	seen := map[string]int{}
	for round := range 500 {
		r.start(a, "T-1", "p")
		password := r.request(a)["redis"].Password
		before, again := seen[password]
		require.False(t, again, "round %d got the sandbox of round %d", round, before)
		seen[password] = round
		r.end(a)
	}
	r.quiet()
}
