package docker_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/engines"
)

func TestEvents(t *testing.T) {
	b := onDocker(t)
	l := b.launch("victim", "sleep")
	l.Labels = map[string]string{"roboco.sandbox.cell": b.prefix}
	id := b.start(t, l)
	b.ready(t, id)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stands, deaths, ended := make(chan struct{}), make(chan engines.Event, 1), make(chan error, 1)
	go func() {
		ended <- b.Events(ctx, func() { close(stands) }, func(d engines.Event) {
			if d.ID == id && d.Action == engines.Died { // others die here, too
				deaths <- d
			}
		})
	}()
	within(t, stands)
	killed := time.Now()
	require.NoError(t, b.api.ContainerKill(t.Context(), id, "KILL"))
	d := within(t, deaths)
	require.Equal(t, l.Name, d.Name)
	require.Equal(t, 137, d.ExitCode)
	c, err := b.Inspect(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, b.prefix, d.Labels["roboco.sandbox.cell"])
	require.Equal(t, c.Labels, d.Labels)
	require.WithinDuration(t, killed, d.Time, time.Minute)

	cancel()
	require.ErrorIs(t, within(t, ended), context.Canceled)
}

// A wait ends with its caller.
func TestWaitExitEndsWithItsContext(t *testing.T) {
	b := onDocker(t)
	id := b.start(t, b.launch("long", "sleep"))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := b.WaitExit(ctx, id)
		ended <- err
	}()
	cancel()
	err := within(t, ended)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, engines.ErrUnavailable, "nothing is known of the container")
}

// within receives, and fails the test when nothing comes.
func within[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(30 * time.Second):
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}
