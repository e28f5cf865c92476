package worker_test

import (
	"bytes"
	"sync"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/engines"
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
