package docker_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/engines"
)

func names(cs []engines.Container) []string {
	var out []string
	for _, c := range cs {
		out = append(out, c.Name)
	}
	return out
}

func TestListings(t *testing.T) {
	b := onDocker(t)
	create := func(name, cell string, start bool) string {
		l := b.launch(name, "sleep")
		l.Labels = map[string]string{"roboco.sandbox.cell": cell, "roboco.sandbox.engine": name}
		id, err := b.Create(t.Context(), l)
		require.NoError(t, err)
		if start {
			require.NoError(t, b.Start(t.Context(), id))
		}
		return id
	}
	pg := create("pg", b.prefix, true)
	create("pg.x", b.prefix, false)
	create("pgyx", b.prefix+"-2", false)

	cell, err := b.List(t.Context(), map[string]string{"roboco.sandbox": "1", "roboco.sandbox.cell": b.prefix})
	require.NoError(t, err)
	require.ElementsMatch(t, []string{b.prefix + "-pg", b.prefix + "-pg.x"}, names(cell), "stopped ones too, of this cell only")
	for _, c := range cell {
		require.Equal(t, c.ID == pg, c.Running)
		require.Equal(t, plainImage(), c.Image)
		require.Equal(t, strings.TrimPrefix(c.Name, b.prefix+"-"), c.Labels["roboco.sandbox.engine"])
		require.False(t, c.Created.IsZero())
	}

	dotted, err := b.ListNamed(t.Context(), b.prefix+"-pg.")
	require.NoError(t, err)
	require.Equal(t, []string{b.prefix + "-pg.x"}, names(dotted), "a prefix, not an expression")
	inner, err := b.ListNamed(t.Context(), strings.TrimPrefix(b.prefix, "sdt-"))
	require.NoError(t, err)
	require.Empty(t, inner, "anchored")
	every, err := b.ListNamed(t.Context(), b.prefix)
	require.NoError(t, err)
	require.Len(t, every, 3)
	require.NoError(t, b.api.ContainerPause(t.Context(), pg))
	paused, err := b.ListNamed(t.Context(), b.prefix+"-pg")
	require.NoError(t, err)
	for _, c := range paused {
		one, err := b.Inspect(t.Context(), c.ID)
		require.NoError(t, err)
		require.Equal(t, one.Running, c.Running, "both ways to look agree")
	}
}

func TestInspectTakesNoBeginnings(t *testing.T) {
	b := onDocker(t)
	id, err := b.Create(t.Context(), b.launch("whole", "sleep"))
	require.NoError(t, err)
	for _, part := range []string{id[:12], b.prefix + "-whol", "absent"} {
		_, err = b.Inspect(t.Context(), part)
		require.ErrorIs(t, err, engines.ErrNotFound, part)
	}
	c, err := b.Inspect(t.Context(), id)
	require.NoError(t, err)
	require.False(t, c.Running)
	require.False(t, c.FirstLife)
}

// A container that exits at once is known at once, with its code and its last words.
func TestExitAndLogs(t *testing.T) {
	b := onDocker(t)
	id := b.start(t, b.launch("exit", "exit", "7", "5"))
	code, err := b.WaitExit(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, 7, code)
	c, err := b.Inspect(t.Context(), id)
	require.NoError(t, err)
	require.False(t, c.Running)
	require.False(t, c.FirstLife)
	require.Equal(t, 7, c.ExitCode)
	require.False(t, c.OOMKilled)

	logs, err := b.Logs(t.Context(), id, 100)
	require.NoError(t, err)
	all := strings.Split(strings.TrimSpace(logs), "\n")
	// The engine reads the two streams side by side: only within one is there an order.
	require.ElementsMatch(t, []string{"out 0", "out 1", "out 2", "out 3", "out 4", "and that was the end"}, all)
	logs, err = b.Logs(t.Context(), id, 3)
	require.NoError(t, err)
	require.Equal(t, all[3:], strings.Split(strings.TrimSpace(logs), "\n"))

	_, err = b.WaitExit(t.Context(), strings.Repeat("0", 64))
	require.ErrorIs(t, err, engines.ErrNotFound)
	_, err = b.Logs(t.Context(), strings.Repeat("0", 64), 3)
	require.ErrorIs(t, err, engines.ErrNotFound)
}

// The memory limit is real, swap included, and a death by it is told apart.
func TestKilledForLackOfMemory(t *testing.T) {
	b := onDocker(t)
	id := b.start(t, b.launch("eat", "eat"))
	code, err := b.WaitExit(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, 137, code)
	c, err := b.Inspect(t.Context(), id)
	require.NoError(t, err)
	require.True(t, c.OOMKilled)
	require.Equal(t, 137, c.ExitCode)
}

func TestLogsAreBounded(t *testing.T) {
	b := onDocker(t)
	id := b.start(t, b.launch("shout", "shout"))
	_, err := b.WaitExit(t.Context(), id)
	require.NoError(t, err)
	logs, err := b.Logs(t.Context(), id, 1000)
	require.NoError(t, err)
	require.Len(t, logs, 64<<10)
	require.True(t, strings.HasSuffix(logs, "x\nlast words\n"))
}

// One that is paused runs, and is told apart; it can be removed as it is.
func TestPaused(t *testing.T) {
	b := onDocker(t)
	l := b.launch("paused", "sleep")
	id := b.start(t, l)
	require.NoError(t, b.api.ContainerPause(t.Context(), id))
	c, err := b.Inspect(t.Context(), id)
	require.NoError(t, err)
	require.True(t, c.Running)
	require.True(t, c.Paused)
	require.NoError(t, b.Remove(t.Context(), id, 50*time.Millisecond))
	_, err = b.Inspect(t.Context(), id)
	require.ErrorIs(t, err, engines.ErrNotFound)
}
