package worker_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/events/eventstest"
	"github.com/roboco/sandboxd/worker/workertest"
)

// One engine fails while the others are still on their way: the refusal names that one, not whichever was stopped for it.
func TestFailureNamesTheEngineThatFailed(t *testing.T) {
	t.Parallel()
	slow := workertest.SimConfig{Seed: 1, ReadyFrom: time.Minute, ReadyTo: 2 * time.Minute}
	s := newSimulated(t, eventstest.StartEmbedded(t), slow)
	s.project("p", []string{"postgres", "redis", "mongo"}, nil)
	s.worker()
	s.sim.Stranger("roboco-sandbox-mongo-a")
	s.start("a", "T-1", "p")
	p := s.answer("a", s.requested("a"))
	f := s.refused(p, 8)
	require.Equal(t, events.StateFailed, p.State)
	require.Contains(t, f.Message, "mongo: the name roboco-sandbox-mongo-a is taken")
	require.NotContains(t, f.Message, "postgres")
	require.NotContains(t, f.Message, "redis:")
}
