package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/build"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/pkg/jsonmessage"
	"github.com/google/uuid"

	"github.com/roboco/sandboxd/engines"
)

// A build gives way to the containers that people wait for, and has as much of a processor as one of those.
const (
	deriveShares = 128     // of the usual 1024
	derivePeriod = 100_000 // microseconds
	deriveQuota  = 100_000
)

// Derive builds an image, without a network, on one that is there, and gives it its tag when it is whole. ctx limits it. On an
// error, which tells the last lines of the build, no container, volume or image of it is left.
func (r *Runtime) Derive(ctx context.Context, d engines.Derivation) error {
	word := uuid.NewString()
	marked := maps.Clone(d.Files)
	marked["Dockerfile"] = d.Marked(word)
	files, err := archive(marked)
	if err != nil {
		return fmt.Errorf("derive %s: %w", d.Tag, err)
	}
	err = r.build(ctx, word, build.ImageBuildOptions{
		Version: build.BuilderV1, Tags: []string{d.Tag}, Labels: d.Labels, Context: bytes.NewReader(files),
		BuildArgs:   map[string]*string{"BASE": &d.Base},
		NetworkMode: "none", Remove: true, ForceRemove: true,
		CPUShares: deriveShares, CPUPeriod: derivePeriod, CPUQuota: deriveQuota,
	})
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return errors.Join(fmt.Errorf("derive %s: %w", d.Tag, classify(err)), r.dropDerivation(ctx, word))
}

// build runs one build to its end. When ctx ends, what runs for it is killed, and the engine ends it; were the connection cut
// instead, the engine would go on for a while, and nobody would know what it still leaves.
func (r *Runtime) build(ctx context.Context, word string, o build.ImageBuildOptions) error {
	whole, cut := context.WithCancel(context.WithoutCancel(ctx))
	killing := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(killing)
		r.killBuild(whole, word)
		cut()
	})
	answer, err := r.cli.ImageBuild(whole, o.Context, o)
	if err == nil {
		err = errors.Join(follow(answer.Body), answer.Body.Close())
	}
	cut()
	if !stop() {
		<-killing
	}
	return err
}

// killBuild kills a build's containers as they come, until the build is over or settleTime is.
func (r *Runtime) killBuild(whole context.Context, word string) {
	ctx, cancel := context.WithTimeout(whole, settleTime)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		running, _ := r.cli.ContainerList(ctx, container.ListOptions{Filters: filters.NewArgs(filters.Arg("label", engines.LabelDerivation+"="+word))})
		for _, c := range running {
			_ = r.cli.ContainerKill(ctx, c.ID, "KILL") // it may have ended by itself
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// archive is the context of a build.
func archive(files map[string]string) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		h := &tar.Header{Name: name, Mode: 0o755, Size: int64(len(files[name])), Typeflag: tar.TypeReg}
		if err := w.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("pack %s: %w", name, err)
		}
		if _, err := io.WriteString(w, files[name]); err != nil {
			return nil, fmt.Errorf("pack %s: %w", name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("pack: %w", err)
	}
	return buf.Bytes(), nil
}

// toldLines is how much of a failed build its error tells.
const toldLines = 8

// follow reads a build's messages to the end. Its error is the build's, with the last lines before it.
func follow(stream io.Reader) error {
	var lines []string
	err := eachMessage(stream, func(m jsonmessage.JSONMessage) {
		for line := range strings.Lines(m.Stream) {
			if line = strings.TrimSpace(line); line != "" {
				lines = append(lines, line)
			}
		}
		lines = lines[max(len(lines)-toldLines, 0):]
	})
	if err != nil {
		return fmt.Errorf("%w; last lines: %s", err, strings.Join(lines, " | "))
	}
	return nil
}

// dropDerivation removes whatever one build has left: its containers with their volumes, then its images. It goes on when the
// caller has gone.
func (r *Runtime) dropDerivation(ctx context.Context, word string) error {
	ctx, cancel := r.settle(ctx)
	defer cancel()
	mark := filters.NewArgs(filters.Arg("label", engines.LabelDerivation+"="+word))
	left, err := r.cli.ContainerList(ctx, container.ListOptions{All: true, Filters: mark})
	if err != nil {
		return fmt.Errorf("list what a build left: %w", classify(err))
	}
	for _, c := range left {
		err = errors.Join(err, r.remove(ctx, c.ID))
	}
	return errors.Join(err, r.dropImages(ctx, mark))
}

// dropImages removes images without a name, each after those that were built on it, and never what they were built on: a base
// without a name is somebody's all the same. One with a name may be built on ours and have inherited the label.
func (r *Runtime) dropImages(ctx context.Context, mark filters.Args) error {
	var last error
	for before := -1; ; {
		left, err := r.cli.ImageList(ctx, image.ListOptions{All: true, Filters: mark})
		if err != nil {
			return fmt.Errorf("list the images of a build: %w", classify(err))
		}
		left = slices.DeleteFunc(left, func(i image.Summary) bool { return len(names(i)) > 0 })
		if len(left) == 0 {
			return nil
		}
		if len(left) == before {
			return last // no step forward: it is used, or was named by somebody
		}
		before, last = len(left), nil
		for _, i := range left {
			if _, err := r.cli.ImageRemove(ctx, i.ID, image.RemoveOptions{}); err != nil && !errdefs.IsNotFound(err) {
				last = inUse(fmt.Errorf("remove image %s: %w", i.ID, err))
			}
		}
	}
}

// DerivedImages lists every image with engines.LabelDerivation that no other one is built on: whole ones, and the last steps of
// builds that were cut off or are under way.
func (r *Runtime) DerivedImages(ctx context.Context) ([]engines.Image, error) {
	ctx, cancel := r.limit(ctx)
	defer cancel()
	found, err := r.cli.ImageList(ctx, image.ListOptions{Filters: filters.NewArgs(filters.Arg("label", engines.LabelDerivation))})
	if err != nil {
		return nil, fmt.Errorf("list derived images: %w", classify(err))
	}
	all := make([]engines.Image, 0, len(found))
	for _, i := range found {
		all = append(all, engines.Image{ID: i.ID, Tags: names(i), Labels: i.Labels, Created: time.Unix(i.Created, 0).UTC()})
	}
	return all, nil
}

// RemoveDerived removes one of them, by its ID, and the steps of its build. ErrInUse when a container uses it, ErrForeign when
// it lacks the label or bears a name that is not ours. One that is gone already is no error.
func (r *Runtime) RemoveDerived(ctx context.Context, id string) error {
	ctx, cancel := r.limit(ctx)
	defer cancel()
	found, err := r.cli.ImageInspect(ctx, id)
	switch {
	case errdefs.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("inspect image %s: %w", id, classify(err))
	case found.Config == nil || found.Config.Labels[engines.LabelDerivation] == "" || slices.ContainsFunc(found.RepoTags, foreignTag):
		return fmt.Errorf("remove image %s: %w", id, engines.ErrForeign)
	}
	for _, tag := range found.RepoTags {
		if _, err := r.cli.ImageRemove(ctx, tag, image.RemoveOptions{}); err != nil && !errdefs.IsNotFound(err) {
			return inUse(fmt.Errorf("remove image %s: %w", tag, err))
		}
	}
	return r.dropImages(ctx, filters.NewArgs(filters.Arg("label", engines.LabelDerivation+"="+found.Config.Labels[engines.LabelDerivation])))
}

// names are an image's tags; an older engine gives one that stands for none.
func names(i image.Summary) []string {
	return slices.DeleteFunc(slices.Clone(i.RepoTags), func(t string) bool { return t == "<none>:<none>" })
}

func foreignTag(tag string) bool { return !strings.HasPrefix(tag, engines.PrimedName+":") }

// inUse is classify for removals of images, whose conflict is with whatever uses them.
func inUse(err error) error {
	if errdefs.IsConflict(err) {
		return fmt.Errorf("%w: %w", engines.ErrInUse, err)
	}
	return classify(err)
}
