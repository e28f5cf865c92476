package worker_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/events/eventstest"
	"github.com/roboco/sandboxd/state"
	"github.com/roboco/sandboxd/worker"
	"github.com/roboco/sandboxd/worker/workertest"
)

// soon bounds every wait for something that is meant to come at once; it is never waited out unless something is wrong.
const soon = 60 * time.Second

// onBoth runs a test on a real Redis and on the embedded one.
func onBoth(t *testing.T, test func(t *testing.T, addr string)) {
	t.Helper()
	for name, start := range map[string]func(testing.TB) string{"redis": eventstest.StartRedis, "embedded": eventstest.StartEmbedded} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, start(t))
		})
	}
}

// simulated is a system on a simulated container engine: no Docker is needed but for a real Redis.
type simulated struct {
	*rig
	sim *workertest.Sim
	// creating and most count the containers whose creation is under way, now and at worst.
	creating, most atomic.Int64
	// noCapacity, while it is set, is how every question for the host's capacity ends.
	noCapacity atomic.Pointer[error]
	// early, while it is set, runs before a creation, and late between the answer to a question for capacity and whoever asked.
	early, late atomic.Pointer[func()]
}

func newSimulated(t *testing.T, addr string, cfg workertest.SimConfig, change ...func(*rig)) *simulated {
	t.Helper()
	sim := workertest.NewSim(cfg)
	t.Cleanup(sim.Close)
	s := &simulated{sim: sim}
	base := func(r *rig) {
		r.cfg.Engines, r.cfg.Runtime, r.cfg.ForceLease = workertest.Engines(sim), countedRuntime{sim, s}, true
		r.cfg.StopGrace, r.cfg.Beat, r.cfg.Drain = time.Millisecond, 100*time.Millisecond, soon
		r.bcfg.Line = 100 * time.Millisecond
	}
	patience := func(r *rig) { r.bcfg.Patience = r.cfg.QueueTimeout }
	s.rig = prepare(t, addr, slices.Concat([]func(*rig){base}, change, []func(*rig){patience})...)
	return s
}

// countedRuntime is the simulated engine, watched.
type countedRuntime struct {
	worker.Runtime
	s *simulated
}

func (c countedRuntime) Create(ctx context.Context, l engines.Launch) (string, error) {
	c.s.creating.Add(1)
	defer c.s.creating.Add(-1)
	if early := c.s.early.Load(); early != nil {
		(*early)()
	}
	for n := c.s.creating.Load(); ; {
		if most := c.s.most.Load(); n <= most || c.s.most.CompareAndSwap(most, n) {
			return c.Runtime.Create(ctx, l)
		}
	}
}

func (c countedRuntime) Capacity(ctx context.Context) (engines.Capacity, error) {
	if err := c.s.noCapacity.Load(); err != nil {
		return engines.Capacity{}, *err
	}
	has, err := c.Runtime.Capacity(ctx)
	if late := c.s.late.Load(); late != nil {
		(*late)()
	}
	return has, err
}

// requested publishes a request without waiting for anything, and returns its ID.
func (s *simulated) requested(slug string) string {
	s.t.Helper()
	id := uuid.Must(uuid.NewV7()).String()
	s.publish(events.SandboxRequested, slug, events.Requested{RequestID: id, Role: "developer"})
	return id
}

// replies reads what a request was told so far.
func (s *simulated) replies(slug, id string) []events.Reply {
	s.t.Helper()
	all, err := s.bus.Replies(context.Background(), slug, id, "")
	require.NoError(s.t, err)
	return all
}

// places lists the positions that a request was told, in turn.
func (s *simulated) places(slug, id string) (places []int) {
	s.t.Helper()
	for _, r := range s.replies(slug, id) {
		if r.Progress != nil && r.Progress.Stage == events.StageQueued {
			places = append(places, r.Progress.Position)
		}
	}
	return places
}

// standsAt waits until a request was told this place, and no later one.
func (s *simulated) standsAt(slug, id string, place int) {
	s.t.Helper()
	s.eventually(soon, func() bool {
		p := s.places(slug, id)
		return len(p) > 0 && p[len(p)-1] == place
	}, "%s was not told place %d", slug, place)
}

// answer waits for a request's terminal reply.
func (s *simulated) answer(slug, id string) (last events.Reply) {
	s.t.Helper()
	s.eventually(soon, func() bool {
		all := s.replies(slug, id)
		if len(all) > 0 {
			last = all[len(all)-1]
		}
		return len(all) > 0 && last.Terminal()
	}, "%s has no answer", slug)
	return last
}

// isFull demands a refusal because the place is full, and gives it.
func (s *simulated) isFull(p events.Reply, says ...string) {
	s.t.Helper()
	f := s.refused(p, 8)
	require.True(s.t, f.Retryable)
	require.Positive(s.t, f.RetryAfterMS)
	require.Contains(s.t, f.Remediate, "request_sandbox() again")
	for _, w := range says {
		require.Contains(s.t, f.Message, w)
	}
	require.Equal(s.t, events.StateFailed, p.State)
}

// hash reads one field of a request's hash.
func (s *simulated) hash(id, field string) string {
	return s.rdb.HGet(context.Background(), "{"+s.bcfg.Cell+"}:request:"+id, field).Val()
}

// rows is the history, of up to 500 requests.
func (s *simulated) rows() []state.Request {
	s.t.Helper()
	rows, err := s.store.Requests(context.Background(), state.HistoryFilter{Limit: 500})
	require.NoError(s.t, err)
	return rows
}
