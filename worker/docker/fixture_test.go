package docker_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/build"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/worker"
	"github.com/roboco/sandboxd/worker/docker"
)

var _ worker.Runtime = (*docker.Runtime)(nil)

// images are made once for all tests of a run, under names of this run's own.
var images = sync.OnceValue(buildImages)

// run tells this run's images, containers and networks from everyone else's.
var run = "sdt-docker-" + strings.ToLower(rand.Text()[:8])

func plainImage() string  { return run + ":plain" }
func volumeImage() string { return run + ":volume" }

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := dropImages(); err != nil {
			fmt.Fprintln(os.Stderr, "remove the test's images:", err)
			code = max(code, 1)
		}
		os.Exit(code)
	}))
}

// host is the engine that the tests use.
func host() string {
	if h := os.Getenv("DOCKER_HOST"); h != "" {
		return h
	}
	return client.DefaultDockerHost
}

// bench is a runtime on the real engine, with the images and an API client to look behind the runtime's back.
type bench struct {
	*docker.Runtime
	api    *client.Client
	prefix string
}

// onDocker gives the test an engine, or skips it with the reason.
func onDocker(t *testing.T, change ...func(*docker.Config)) bench {
	t.Helper()
	if testing.Short() {
		t.Skip("needs Docker: not run with -short")
	}
	cfg := docker.Config{Host: host(), Log: zerolog.New(zerolog.NewTestWriter(t))}
	for _, c := range change {
		c(&cfg)
	}
	r, err := docker.Open(t.Context(), cfg)
	if err != nil {
		if os.Getenv("REQUIRE_DOCKER") == "1" {
			t.Fatalf("REQUIRE_DOCKER=1: %v", err)
		}
		t.Skipf("needs Docker: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	require.NoError(t, images())
	api, err := connect()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, api.Close()) })
	b := bench{Runtime: r, api: api, prefix: run + "-" + strings.ToLower(rand.Text()[:6])}
	t.Cleanup(func() { b.sweep(t) })
	return b
}

// sweep removes what the test made.
func (b bench) sweep(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	left, err := b.ListNamed(ctx, b.prefix)
	require.NoError(t, err)
	for _, c := range left {
		require.NoError(t, b.Remove(ctx, c.ID, 0))
	}
	_ = b.api.NetworkRemove(ctx, b.prefix) // most tests make none
}

// launch is a small container that the test may change before it is made.
func (b bench) launch(name string, cmd ...string) engines.Launch {
	return engines.Launch{
		Spec:   engines.Spec{Image: plainImage(), Entrypoint: []string{"/probe"}, Cmd: cmd},
		Name:   b.prefix + "-" + name,
		Memory: 64 << 20, NanoCPUs: 5e8, Pids: 32,
	}
}

// start makes and starts it.
func (b bench) start(t *testing.T, l engines.Launch) string {
	t.Helper()
	id, err := b.Create(t.Context(), l)
	require.NoError(t, err)
	require.NoError(t, b.Start(t.Context(), id))
	return id
}

// ready waits until the program in the container has set up its signals.
func (b bench) ready(t *testing.T, id string) {
	t.Helper()
	require.Eventually(t, func() bool {
		out, err := b.Logs(t.Context(), id, 1)
		return err == nil && strings.Contains(out, "ready")
	}, 20*time.Second, 10*time.Millisecond)
}

// volumes are the container's, looked up behind the runtime's back.
func (b bench) volumes(t *testing.T, id string) []string {
	t.Helper()
	info, err := b.api.ContainerInspect(t.Context(), id)
	require.NoError(t, err)
	var names []string
	for _, m := range info.Mounts {
		require.NotEmpty(t, m.Name)
		names = append(names, m.Name)
	}
	return names
}

// volumeExists reports on one volume: a count would be disturbed by whoever else uses the engine.
func (b bench) volumeExists(t *testing.T, name string) bool {
	t.Helper()
	found, err := b.api.VolumeList(t.Context(), volume.ListOptions{Filters: filters.NewArgs(filters.Arg("name", name))})
	require.NoError(t, err)
	return len(found.Volumes) > 0
}

// connect gives a plain API client of that engine.
func connect() (*client.Client, error) {
	return client.NewClientWithOpts(client.WithHost(host()), client.WithAPIVersionNegotiation())
}

func buildImages() error {
	api, err := connect()
	if err != nil {
		return err
	}
	defer api.Close()
	root, err := probeTar()
	if err != nil {
		return err
	}
	ctx := context.Background()
	stream, err := api.ImageImport(ctx, image.ImportSource{Source: bytes.NewReader(root), SourceName: "-"}, plainImage(),
		image.ImportOptions{Changes: []string{"EXPOSE 7001", "EXPOSE 7002", "LABEL sandboxd.test=1"}})
	if err := finish(stream, err); err != nil {
		return fmt.Errorf("import %s: %w", plainImage(), err)
	}
	file := "FROM " + plainImage() + "\nVOLUME /vol /other\nSTOPSIGNAL SIGUSR1\nHEALTHCHECK CMD [\"/probe\", \"exit\", \"0\", \"0\"]\n"
	dir, err := tarball("Dockerfile", []byte(file))
	if err != nil {
		return err
	}
	built, err := api.ImageBuild(ctx, bytes.NewReader(dir), build.ImageBuildOptions{Tags: []string{volumeImage()}, Remove: true})
	if err := finish(built.Body, err); err != nil {
		return fmt.Errorf("build %s: %w", volumeImage(), err)
	}
	return nil
}

// finish reads the engine's answer to the end, where an error may stand.
func finish(answer io.ReadCloser, err error) error {
	if err != nil {
		return err
	}
	raw, err := io.ReadAll(answer)
	if err = errors.Join(err, answer.Close()); err != nil {
		return err
	}
	if bytes.Contains(raw, []byte("errorDetail")) {
		return errors.New(string(raw))
	}
	return nil
}

// probeTar is a root file system with the probe alone.
func probeTar() ([]byte, error) {
	dir, err := os.MkdirTemp("", "probe")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	bin := filepath.Join(dir, "probe")
	compile := exec.Command("go", "build", "-ldflags=-s -w", "-o", bin, "./testdata/probe")
	compile.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	if out, err := compile.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the probe: %w: %s", err, out)
	}
	raw, err := os.ReadFile(bin)
	if err != nil {
		return nil, err
	}
	return tarball("probe", raw)
}

// tarball is an archive of one executable file.
func tarball(name string, content []byte) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content)), Typeflag: tar.TypeReg})
	if err == nil {
		_, err = w.Write(content)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, fmt.Errorf("pack %s: %w", name, err)
	}
	return buf.Bytes(), nil
}

// dropImages removes every image of this run, pulled ones too, with the steps they were built in.
func dropImages() error {
	if testing.Short() {
		return nil
	}
	api, err := connect()
	if err != nil {
		return err
	}
	defer api.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	all, err := api.ImageList(ctx, image.ListOptions{})
	if err != nil {
		return nil
	}
	for _, i := range all {
		for _, tag := range i.RepoTags {
			if strings.Contains(tag, run) {
				_, rerr := api.ImageRemove(ctx, tag, image.RemoveOptions{PruneChildren: true})
				err = errors.Join(err, rerr)
			}
		}
	}
	return err
}
