package docker_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	dockerevents "github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/engines"
)

// derivation is a build on one of the test's images. Its last step is a command of the probe's; every step carries the test's
// own label, by which the test finds what is left behind the runtime's back.
func (b bench) derivation(t *testing.T, base string, run string) engines.Derivation {
	t.Helper()
	id, err := b.ImageID(t.Context(), base)
	require.NoError(t, err)
	file := strings.Join([]string{
		"ARG BASE", "FROM ${BASE}", "LABEL sandboxd.test=" + b.prefix, "COPY note /note", "RUN " + run,
	}, "\n")
	d := engines.Derivation{
		Base: id, Tag: engines.PrimedName + ":" + b.prefix, Files: map[string]string{"Dockerfile": file, "note": "kept"},
		Labels: map[string]string{engines.LabelPrimed: id, engines.LabelPrimedBase: base, engines.LabelPrimedRecipe: "r"},
	}
	t.Cleanup(func() { b.dropDerived(t) })
	return d
}

// dropDerived removes what the test built and did not remove.
func (b bench) dropDerived(t *testing.T) {
	ctx := context.WithoutCancel(t.Context())
	for range 8 { // an image goes after those that were built on it
		left := b.images(t)
		for _, i := range left {
			_, _ = b.api.ImageRemove(ctx, i.ID, image.RemoveOptions{Force: true})
		}
		if len(left) == 0 {
			return
		}
	}
}

// images are all that carry the test's label, every step's too, and whatever stands on the image with volumes, with which
// nothing else is built.
func (b bench) images(t *testing.T) []image.Summary {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	base, err := b.ImageID(ctx, volumeImage())
	require.NoError(t, err)
	all, err := b.api.ImageList(ctx, image.ListOptions{All: true})
	require.NoError(t, err)
	return slices.DeleteFunc(all, func(i image.Summary) bool { return i.ParentID != base && i.Labels["sandboxd.test"] != b.prefix })
}

func (b bench) builders(t *testing.T) []container.Summary {
	t.Helper()
	all, err := b.api.ContainerList(t.Context(), container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", "sandboxd.test="+b.prefix))})
	require.NoError(t, err)
	return all
}

// volumesOf follows the engine's events and gives, when asked, the volumes of every container that carried the test's label.
func (b bench) volumesOf(t *testing.T) func() []string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	feed, _ := b.api.Events(ctx, dockerevents.ListOptions{Since: time.Now().Format(time.RFC3339Nano)})
	var mu sync.Mutex
	ours, volumes := map[string]bool{}, map[string]string{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case e := <-feed:
				mu.Lock()
				switch {
				case e.Type == dockerevents.ContainerEventType && e.Actor.Attributes["sandboxd.test"] == b.prefix:
					ours[e.Actor.ID] = true
				case e.Type == dockerevents.VolumeEventType && e.Action == dockerevents.ActionMount:
					volumes[e.Actor.ID] = e.Actor.Attributes["container"]
				}
				mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.DeleteFunc(slices.Collect(maps.Keys(volumes)), func(v string) bool { return !ours[volumes[v]] })
	}
}

func TestDerive(t *testing.T) {
	b := onDocker(t)
	d := b.derivation(t, volumeImage(), `["/probe", "exit", "0", "0"]`)
	require.NoError(t, b.Derive(t.Context(), d))

	all, err := b.DerivedImages(t.Context())
	require.NoError(t, err)
	at := slices.IndexFunc(all, func(i engines.Image) bool { return slices.Contains(i.Tags, d.Tag) })
	require.GreaterOrEqual(t, at, 0, "%v", all)
	for k, v := range d.Labels {
		require.Equal(t, v, all[at].Labels[k])
	}
	require.Empty(t, b.builders(t))

	id := b.start(t, engines.Launch{Spec: engines.Spec{Image: d.Tag, Entrypoint: []string{"/probe"}, Cmd: []string{"sleep"}}, Name: b.prefix + "-user"})
	require.ErrorIs(t, b.RemoveDerived(t.Context(), all[at].ID), engines.ErrInUse)
	require.NoError(t, b.Remove(t.Context(), id, 0))
	require.NoError(t, b.RemoveDerived(t.Context(), all[at].ID))
	require.NoError(t, b.RemoveDerived(t.Context(), all[at].ID), "it is gone already")
	require.Empty(t, b.images(t), "the steps of its build go too")
	_, err = b.ImageID(t.Context(), volumeImage())
	require.NoError(t, err, "what it was built on stays")
}

// A build that fails, at its last step or because its caller has gone, leaves no container, no volume and no image.
func TestDeriveLeavesNothing(t *testing.T) {
	b := onDocker(t)
	volumes := b.volumesOf(t)
	d := b.derivation(t, volumeImage(), `["/probe", "exit", "7", "0"]`)
	err := b.Derive(t.Context(), d)
	require.ErrorContains(t, err, "returned a non-zero code: 7")
	require.ErrorContains(t, err, "last lines")
	b.nothingLeft(t, volumes)

	ctx, cancel := context.WithCancel(t.Context())
	running := make(chan struct{})
	go func() {
		defer close(running)
		for t.Context().Err() == nil && len(b.builders(t)) == 0 {
			time.Sleep(5 * time.Millisecond)
		}
		cancel()
	}()
	err = b.Derive(ctx, b.derivation(t, volumeImage(), `["/probe", "sleep"]`))
	<-running
	require.ErrorIs(t, err, context.Canceled)
	b.nothingLeft(t, volumes)
}

func (b bench) nothingLeft(t *testing.T, volumes func() []string) {
	t.Helper()
	require.Eventually(t, func() bool { return len(b.builders(t)) == 0 }, time.Minute, 10*time.Millisecond, "a container is left")
	require.Empty(t, b.images(t), "an image is left")
	require.Eventually(t, func() bool { return len(volumes()) > 0 }, time.Minute, 10*time.Millisecond, "no build had a volume, so nothing is proven")
	for _, v := range volumes() {
		require.False(t, b.volumeExists(t, v), "a volume is left")
	}
}

// Without a shell there is nothing to run: the error says what was tried.
func TestDeriveWithoutShell(t *testing.T) {
	b := onDocker(t)
	d := b.derivation(t, plainImage(), "true")
	require.ErrorContains(t, b.Derive(t.Context(), d), "/bin/sh")
	require.Empty(t, b.images(t))
}

// An image is somebody's where it lacks the label, or was built on ours and named.
func TestRemoveDerivedKeepsToOurs(t *testing.T) {
	b := onDocker(t)
	plain, err := b.ImageID(t.Context(), plainImage())
	require.NoError(t, err)
	require.ErrorIs(t, b.RemoveDerived(t.Context(), plain), engines.ErrForeign)

	d := b.derivation(t, plainImage(), `["/probe", "exit", "0", "0"]`)
	require.NoError(t, b.Derive(t.Context(), d))
	id, err := b.ImageID(t.Context(), d.Tag)
	require.NoError(t, err)
	theirs := run + ":theirs"
	require.NoError(t, b.api.ImageTag(t.Context(), d.Tag, theirs))
	require.ErrorIs(t, b.RemoveDerived(t.Context(), id), engines.ErrForeign)
	_, err = b.api.ImageRemove(t.Context(), theirs, image.RemoveOptions{})
	require.NoError(t, err)
	require.NoError(t, b.RemoveDerived(t.Context(), id))
	_, err = b.ImageID(t.Context(), plainImage())
	require.NoError(t, err)
}
