package statetest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/state"
)

// Catalog is the allowlist that the suite opens its stores with.
func Catalog() state.Catalog {
	return state.Catalog{
		Services: []string{"postgres", "redis", "mongo"},
		Features: map[string][]string{
			"postgres": {"citext", "pg_trgm", "postgis", "uuid-ossp", "vector"},
			"redis":    {"bloom", "json", "search"},
			"mongo":    {},
		},
	}
}

// Open makes a store that nothing was written to; the suite closes it.
type Open func(t *testing.T, c state.Catalog) state.Store

// Run holds a store to what the interfaces of package state promise.
func Run(t *testing.T, open Open) {
	t.Run("projects", func(t *testing.T) { runProjects(t, open) })
	t.Run("project rules", func(t *testing.T) { runProjectRules(t, open) })
	t.Run("agents", func(t *testing.T) { runAgents(t, open) })
	t.Run("work", func(t *testing.T) { runWork(t, open) })
	t.Run("owed events", func(t *testing.T) { runOwed(t, open) })
	t.Run("flags", func(t *testing.T) { runFlags(t, open) })
	t.Run("history", func(t *testing.T) { runHistory(t, open) })
	t.Run("at once", func(t *testing.T) { runAtOnce(t, open) })
	t.Run("contexts", func(t *testing.T) { runContexts(t, open) })
}

// nasty are values that must be data wherever they are given, and nothing else.
func nasty() []string {
	return []string{
		`'; DROP TABLE sandboxd.projects; --`, `" OR 1=1 --`, `$1`, `%s%d`, `\`, `{"a":[1]}`, `NULL`, `robert'); --`,
		"Zürich 東京 🚀", "e\u0301 is not é", "a\tb", "  spaces  ",
	}
}

func opened(t *testing.T, open Open) state.Store {
	t.Helper()
	s := open(t, Catalog())
	t.Cleanup(s.Close)
	return s
}

// background is a context that ends with the test at the latest.
func background(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func refused(t *testing.T, err error, field string) *state.InvalidError {
	t.Helper()
	var invalid *state.InvalidError
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, field, invalid.Field, invalid.Error())
	require.NotEmpty(t, invalid.Problem)
	return invalid
}

func sum(token string) []byte {
	s := sha256.Sum256([]byte(token))
	return s[:]
}

// event is an event to be owed, with an ID of its own.
func event(kind string) state.Outgoing {
	id := uuid.Must(uuid.NewV7()).String()
	return state.Outgoing{EventID: id, Event: fmt.Appendf(nil, `{"id": %q,  "type":%q}`, id, kind)}
}

func stored(t *testing.T, at time.Time) {
	t.Helper()
	require.False(t, at.IsZero())
	require.Equal(t, time.UTC, at.Location())
	require.Zero(t, at.Nanosecond()%1000, "whole microseconds")
	require.WithinDuration(t, time.Now(), at, 5*time.Minute)
}
