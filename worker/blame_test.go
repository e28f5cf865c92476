package worker_test

import (
	"bytes"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/events/eventstest"
	"github.com/roboco/sandboxd/worker/workertest"
)

// lines is a log that may be written from many goroutines.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write keeps what is logged.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String is all that was logged.
func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Count(l.b.Bytes(), []byte(text))
}

// One engine's image cannot be had: it alone is blamed, and the refusal names the operator's variable.
func TestOneEnginesFailureIsNotTheOthers(t *testing.T) {
	t.Parallel()
	log := &lines{}
	r := newRig(t, func(r *rig) {
		r.cfg.Engines = engines.Builtin().WithImages("mongo", "registry.invalid/none:1", "")
		r.cfg.Log = zerolog.New(log)
	})
	r.worker()
	a := r.slug("blame")
	r.project("p", engines.Builtin().Names(), nil)
	r.start(a, "T-1", "p")
	refusal := r.refused(r.ask(a, nil, nil)(), 8)
	require.Contains(t, refusal.Message, "mongo: ")
	require.Contains(t, refusal.Remediate, "ROBOCO_SANDBOX_MONGO_IMAGE")
	require.False(t, refusal.Retryable, "a registry that has no address will have none in a moment: %s", refusal.Message)
	require.Equal(t, 1, log.count("engine could not be provided"))
	r.quiet()
	require.Empty(t, r.containers(a))
}

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
