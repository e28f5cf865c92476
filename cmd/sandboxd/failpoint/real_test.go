package failpoint_test

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events/eventstest"
	"github.com/roboco/sandboxd/worker/docker"
)

// newRealWorld makes a system on the real container engine, with a network of its own.
func newRealWorld(t *testing.T) *world {
	t.Helper()
	rt, err := docker.Open(t.Context(), docker.Config{Host: os.Getenv("DOCKER_HOST"), Log: zerolog.Nop()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = rt.Close() })
	cell := eventstest.Cell()
	w := &world{
		t: t, cell: cell, slug: cell, folder: t.TempDir(), runtime: rt, registry: engines.Builtin(),
		network: "sandboxd-test-" + cell, times: times{3 * time.Second, time.Second, 2 * time.Second},
	}
	t.Cleanup(func() {
		all, err := w.containers(context.WithoutCancel(t.Context()))
		require.NoError(t, err)
		for _, c := range all {
			_ = rt.Remove(context.WithoutCancel(t.Context()), c.ID, 0)
		}
		_ = exec.Command("docker", "network", "rm", w.network).Run()
	})
	w.connect()
	return w
}

func realScenarios() []scenario {
	redis := []string{"redis"}
	made := func(w *world) { w.sandbox(nil) }
	return []scenario{
		{name: "idle", real: true, services: redis, want: none()},
		{name: "create", real: true, services: redis, act: func(w *world) {
			w.begin("T-1")
			w.ask(nil, nil)
		}},
		{name: "replace", real: true, services: redis, prepare: made, act: func(w *world) {
			w.ask(nil, map[string][]string{"redis": {"bloom"}})
		}},
		{name: "end", real: true, services: redis, prepare: made, act: (*world).end, want: none()},
	}
}

// gravest are the points after which a container or a record stands that the next worker does not know of.
func gravest() []string {
	return []string{
		"create/engine.create.after#1", "create/engine.start.after#1", "create/redis.record.before#1", "create/redis.record.after#1",
		"replace/engine.rename.after#1", "replace/engine.rename.after#2", "replace/redis.record.after#1", "replace/engine.remove.before#1",
		"end/redis.revoke.after#1", "end/engine.remove.after#1",
	}
}

// The same on real containers: at the gravest points, or in the long form at all of them. It does not run beside the rest:
// containers take what the machine has.
func TestRealCrashMatrix(t *testing.T) {
	needContainers(t)
	binary(t)
	all, passed := realScenarios(), map[string][]string{}
	var mu sync.Mutex
	t.Run("undisturbed", func(t *testing.T) {
		for _, s := range all {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				points := rehearse(t, s)
				mu.Lock()
				defer mu.Unlock()
				passed[s.name] = points
			})
		}
	})
	require.False(t, t.Failed(), "the scenarios themselves fail")
	var cases []kill
	seen := map[string]bool{}
	for _, s := range all {
		for _, point := range passed[s.name] {
			k := kill{s, point}
			name, pass, _ := strings.Cut(point, "#")
			everywhere := everything() && pass == "1" && s.name != "idle" && !slices.Contains(passed["idle"], point) && !chancy(s, name)
			if !seen[k.String()] && (everywhere || slices.Contains(gravest(), k.String())) {
				seen[k.String()] = true
				cases = append(cases, k)
			}
		}
	}
	for _, g := range gravest() {
		require.True(t, seen[g] || len(passed) < len(all), "no worker came to %s", g)
	}
	var table results
	t.Run("killed", func(t *testing.T) { table.each(t, cases) })
	table.show(t)
}
