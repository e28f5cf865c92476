package docker_test

import (
	"context"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/roboco/sandboxd/engines"
)

// An image that declares volumes leaves none, neither after a life nor after a start that failed.
func TestNoVolumeIsLeft(t *testing.T) {
	b := onDocker(t)
	l := b.launch("vol", "sleep")
	l.Image = volumeImage()
	l.Tmpfs = []engines.Tmpfs{{Path: "/vol", Size: 1 << 20}}
	id := b.start(t, l)
	made := b.volumes(t, id)
	require.Len(t, made, 1, "the tmpfs takes the place of /vol, and /other is a volume")
	require.True(t, b.volumeExists(t, made[0]))
	require.NoError(t, b.Remove(t.Context(), id, time.Second))
	require.False(t, b.volumeExists(t, made[0]))

	l.Entrypoint = []string{"/absent"}
	id, err := b.Create(t.Context(), l)
	require.NoError(t, err)
	made = b.volumes(t, id)
	require.Len(t, made, 1)
	err = b.Start(t.Context(), id)
	require.ErrorContains(t, err, "/absent")
	require.NotErrorIs(t, err, engines.ErrUnavailable)
	require.False(t, b.volumeExists(t, made[0]))
	_, err = b.Inspect(t.Context(), id)
	require.ErrorIs(t, err, engines.ErrNotFound)
}

// The stop signal is the image's own, and the default where it names none; the exit is awaited.
func TestRemoveAsksFirst(t *testing.T) {
	b := onDocker(t)
	for image, code := range map[string]int{volumeImage(): 5, plainImage(): 4} {
		t.Run(image, func(t *testing.T) {
			l := b.launch("polite", "sleep")
			l.Image = image
			id := b.start(t, l)
			b.ready(t, id)
			exit := make(chan int, 1)
			var g errgroup.Group
			g.Go(func() error {
				got, err := b.WaitExit(t.Context(), id)
				exit <- got
				return err
			})
			require.NoError(t, b.Remove(t.Context(), id, time.Minute))
			require.NoError(t, g.Wait())
			require.Equal(t, code, <-exit)
			_, err := b.Inspect(t.Context(), id)
			require.ErrorIs(t, err, engines.ErrNotFound)
		})
	}
}

// One that does not listen, that is paused, or that never ran goes all the same.
func TestRemoveByForce(t *testing.T) {
	b := onDocker(t)
	stubborn := b.start(t, b.launch("stubborn", "stubborn"))
	b.ready(t, stubborn)
	require.NoError(t, b.Remove(t.Context(), stubborn, 50*time.Millisecond))

	paused := b.start(t, b.launch("paused", "sleep"))
	require.NoError(t, b.api.ContainerPause(t.Context(), paused))
	require.NoError(t, b.Remove(t.Context(), paused, 50*time.Millisecond))

	never, err := b.Create(t.Context(), b.launch("never", "sleep"))
	require.NoError(t, err)
	require.NoError(t, b.Remove(t.Context(), never, time.Minute))

	left, err := b.ListNamed(t.Context(), b.prefix)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestRemoveAgainAndAtOnce(t *testing.T) {
	b := onDocker(t)
	id := b.start(t, b.launch("gone", "sleep"))
	var g errgroup.Group
	for range 8 {
		g.Go(func() error {
			if err := b.Remove(t.Context(), id, 20*time.Millisecond); err != nil {
				return err
			}
			if _, err := b.Inspect(t.Context(), id); err == nil {
				return context.Canceled // still there though it was said to be removed
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	require.NoError(t, b.Remove(t.Context(), id, time.Second))
}

// A stranger lives, whatever its name, and so does one whose label has another value.
func TestRemoveLeavesStrangers(t *testing.T) {
	b := onDocker(t)
	for name, labels := range map[string]map[string]string{"bare": nil, "other": {"roboco.sandbox": "0"}} {
		made, err := b.api.ContainerCreate(t.Context(), &container.Config{Image: plainImage(), Cmd: []string{"/probe", "sleep"}, Labels: labels},
			nil, nil, nil, b.prefix+"-"+name)
		require.NoError(t, err)
		t.Cleanup(func() {
			err := b.api.ContainerRemove(context.WithoutCancel(t.Context()), made.ID, container.RemoveOptions{Force: true})
			require.NoError(t, err)
		})
		require.NoError(t, b.Start(t.Context(), made.ID))
		err = b.Remove(t.Context(), made.ID, time.Second)
		require.ErrorIs(t, err, engines.ErrForeign)
		require.ErrorContains(t, err, b.prefix+"-"+name)
		c, err := b.Inspect(t.Context(), made.ID)
		require.NoError(t, err)
		require.True(t, c.Running)
		require.True(t, c.FirstLife, "it was not even signalled")
	}
}
