package worker_test

import (
	"context"
	"crypto/rand"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/engines"
)

// primedOf lists the primed images of a base with this name.
func (r *rig) primedOf(base string) (tags []string) {
	r.t.Helper()
	all, err := r.runtime.DerivedImages(context.Background())
	require.NoError(r.t, err)
	for _, i := range all {
		if i.Labels[engines.LabelPrimedBase] == base {
			tags = append(tags, i.Tags...)
		}
	}
	return tags
}

// runs is the image that a container really runs.
func (r *rig) runs(name string) string {
	r.t.Helper()
	return strings.TrimSpace(dockerCLI(r.t, "inspect", "--format", "{{.Config.Image}}", name))
}

// primedLightly lets redis be primed in one step that changes nothing: postgres's own takes half a minute on a slow disk, and is
// tried elsewhere.
func (r *rig) primedLightly(base string) {
	r.cfg.Engines = slices.Clone(engines.Builtin().WithImages("redis", base, base))
	for i := range r.cfg.Engines {
		e := &r.cfg.Engines[i]
		if e.Primed = nil; e.Name == "redis" {
			e.Primed = &engines.Primed{Describe: e.Describe, Files: map[string]string{"Dockerfile": "ARG BASE\nFROM ${BASE}\nLABEL sandboxd.test=primed\n"}}
		}
	}
}

// buildNew gives the name to a redis whose content is new, and tells its ID.
func buildNew(t *testing.T, name string) (id string) {
	t.Helper()
	build := exec.Command("docker", "build", "--tag", name, "-")
	build.Stdin = strings.NewReader("FROM redis:8-alpine\nLABEL sandboxd.test=" + rand.Text() + "\n")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	return strings.TrimSpace(dockerCLI(t, "image", "inspect", "--format", "{{.Id}}", name))
}

// A base that is given another content is primed anew, by itself; the former primed image goes once nothing runs from it.
func TestRetaggedBaseOnDocker(t *testing.T) {
	t.Parallel()
	base := "sdt-primed-" + strings.ToLower(rand.Text()[:8]) + ":x"
	r := newRig(t, func(r *rig) {
		r.primedLightly(base)
		r.cfg.JanitorInterval = 500 * time.Millisecond
	})
	bases := []string{buildNew(t, base)}
	_, stop := r.worker()
	t.Cleanup(func() {
		stop()
		for _, c := range r.containers("") {
			_ = r.runtime.Remove(context.Background(), c.ID, 0)
		}
		dockerCLI(t, slices.Concat([]string{"image", "rm"}, r.primedOf(base), bases)...)
	})
	var former []string
	r.eventually(5*time.Minute, func() bool { former = r.primedOf(base); return len(former) == 1 }, "the base was not primed")
	a, b := r.slug("a"), r.slug("b")
	r.project("p", []string{"redis"}, nil)
	r.start(a, "T-1", "p")
	got := r.request(a)
	require.Equal(t, base, got["redis"].Image)
	require.Equal(t, former[0], r.runs("roboco-sandbox-redis-"+a))

	bases = append(bases, buildNew(t, base))
	r.eventually(5*time.Minute, func() bool { return len(r.primedOf(base)) == 2 }, "the new content was not primed, or what is in use was removed")
	r.start(b, "T-2", "p")
	r.request(b)
	second := r.runs("roboco-sandbox-redis-" + b)
	require.Contains(t, r.primedOf(base), second)
	require.NotEqual(t, former[0], second)
	r.end(a)
	r.eventually(time.Minute, func() bool { return slices.Equal(r.primedOf(base), []string{second}) }, "the former image is left")
	r.end(b)
	r.eventually(time.Minute, func() bool { return len(r.containers("")) == 0 }, "an end removes everything")
}

// An image without a shell cannot be primed: the engine starts plainly, and the log says why.
func TestPlainStartOnDocker(t *testing.T) {
	t.Parallel()
	log := &lockedLog{}
	r := newRig(t, func(r *rig) {
		r.cfg.Log = zerolog.New(io.MultiWriter(log, r.cfg.Log))
		r.cfg.Engines = slices.Clone(r.cfg.Engines)
		for i := range r.cfg.Engines {
			e := &r.cfg.Engines[i]
			if e.Primed = nil; e.Name == "redis" {
				e.Primed = &engines.Primed{Describe: e.Describe, Files: map[string]string{
					"Dockerfile": "ARG BASE\nFROM ${BASE}\nRUN [\"/no/shell\"]\n",
				}}
			}
		}
	})
	r.worker()
	r.eventually(2*time.Minute, func() bool {
		return strings.Contains(log.String(), "image could not be primed; its engine starts plainly")
	}, "nothing was said")
	require.Contains(t, log.String(), "/no/shell")
	a := r.slug("a")
	r.project("p", []string{"redis"}, nil)
	r.start(a, "T-1", "p")
	require.NoError(t, r.works(a, r.request(a)["redis"]))
	require.Equal(t, "redis:8-alpine", r.runs("roboco-sandbox-redis-"+a))
	require.Empty(t, slices.DeleteFunc(r.primedOf("redis:8-alpine"), func(tag string) bool { return !strings.Contains(tag, ":redis-") }))
}
