package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/client"
)

// needDocker skips where there is no Docker, and fails there when REQUIRE_DOCKER is set.
func needDocker(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs Docker")
	}
	if out, err := exec.CommandContext(t.Context(), "docker", "version").CombinedOutput(); err != nil {
		if os.Getenv("REQUIRE_DOCKER") != "" {
			t.Fatalf("Docker is required: %s", out)
		}
		t.Skipf("Docker does not answer: %v", err)
	}
}

// dockerLines runs the docker command and gives the words it printed.
func dockerLines(t *testing.T, args ...string) []string {
	t.Helper()
	out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "docker", args...).CombinedOutput()
	require.NoError(t, err, "docker %v: %s", args, out)
	return strings.Fields(string(out))
}

func unique(t *testing.T) string {
	t.Helper()
	b := make([]byte, 4)
	_, err := rand.Read(b)
	require.NoError(t, err)
	return "t" + hex.EncodeToString(b)
}

// buffer may be written to while it is read.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write keeps p.
func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String is all that was written.
func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// cleanEnviron is this process's environment without what configures sandboxd.
func cleanEnviron(extra ...string) []string {
	var all []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "ROBOCO_") {
			all = append(all, kv)
		}
	}
	return append(all, extra...)
}

// devRun is a `sandboxd dev` in this process.
type devRun struct {
	vars   map[string]string // of the token file
	tokens string            // where it is
	out    *buffer
	stop   func() int
}

func startDev(t *testing.T, seedFile string) devRun {
	t.Helper()
	folder := t.TempDir()
	file, tokens := filepath.Join(folder, "seed.yaml"), filepath.Join(folder, "tokens")
	require.NoError(t, os.WriteFile(file, []byte(seedFile), 0o600))
	d := devRun{vars: map[string]string{}, tokens: tokens, out: &buffer{}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	code := make(chan int, 1)
	p := program{environ: cleanEnviron("ROBOCO_SANDBOX_LISTEN=127.0.0.1:0"), out: d.out, err: d.out, home: os.UserHomeDir}
	go func() { code <- run(ctx, p, []string{"dev", "--file", file, "--token-file", tokens}) }()
	d.stop = sync.OnceValue(func() int { cancel(); return <-code })
	t.Cleanup(func() { d.stop() })
	require.Eventually(t, func() bool { _, err := os.Stat(tokens); return err == nil }, never, 20*time.Millisecond, "%s", d.out)
	info, err := os.Stat(tokens)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	text, err := os.ReadFile(tokens)
	require.NoError(t, err)
	for l := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(l), "export "), "=")
		d.vars[name] = strings.Trim(value, "'")
	}
	return d
}

// The whole program, from an empty machine to an empty machine.
func TestDevFromStartToEnd(t *testing.T) {
	t.Parallel()
	needDocker(t)
	agent := unique(t)
	d := startDev(t, fmt.Sprintf(`
projects: [{slug: shop, name: Shop, sandbox_services: [redis]}]
agents: [{slug: %s, project: shop}]
`, agent))
	require.NotContains(t, d.out.String(), d.vars["SANDBOXD_DEV_OPERATOR_TOKEN"], "the tokens are in the file alone")
	c, err := client.New(client.Config{URL: d.vars["ROBOCO_SANDBOX_URL"], Token: d.vars["ROBOCO_SANDBOX_TOKEN"]})
	require.NoError(t, err)

	env, err := c.RequestSandbox(t.Context(), client.SandboxRequest{}, nil)
	require.NoError(t, err, "%s", d.out)
	require.Equal(t, "created", env.Evidence["redis"].Outcome)
	require.Equal(t, "127.0.0.1", env.Evidence["redis"].Env["ROBOCO_TEST_REDIS_HOST"])
	opts, err := redis.ParseURL(env.Evidence["redis"].URL)
	require.NoError(t, err)
	rdb := redis.NewClient(opts)
	defer func() { _ = rdb.Close() }()
	require.NoError(t, rdb.Set(t.Context(), "k", "v", 0).Err())

	again, err := c.RequestSandbox(t.Context(), client.SandboxRequest{}, nil)
	require.NoError(t, err)
	require.Equal(t, "reused", again.Evidence["redis"].Outcome)
	require.Equal(t, env.Evidence["redis"].Password, again.Evidence["redis"].Password)

	ours := []string{"ps", "-aq", "--filter", "label=roboco.sandbox.owner=roboco-agent-" + agent}
	require.Len(t, dockerLines(t, ours...), 1)
	_, err = c.EndWork(t.Context(), "i_am_done", "")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(dockerLines(t, ours...)) == 0 }, never, 50*time.Millisecond)
	_, err = c.Sandbox(t.Context())
	require.True(t, client.IsStatus(err, http.StatusNotFound), "%v", err)
	require.NotContains(t, d.out.String(), "\x1b[", "no colours where there is no terminal")
	require.Equal(t, exitOK, d.stop(), "%s", d.out)
	require.NoFileExists(t, d.tokens, "the tokens are worth nothing any more")
}

// What still lives when it ends goes with it.
func TestDevRemovesWhatItMade(t *testing.T) {
	t.Parallel()
	needDocker(t)
	agent := unique(t)
	d := startDev(t, fmt.Sprintf("projects: [{slug: shop, sandbox_services: [redis]}]\nagents: [{slug: %s, project: shop}]", agent))
	c, err := client.New(client.Config{URL: d.vars["ROBOCO_SANDBOX_URL"], Token: d.vars["ROBOCO_SANDBOX_TOKEN"]})
	require.NoError(t, err)
	_, err = c.RequestSandbox(t.Context(), client.SandboxRequest{}, nil)
	require.NoError(t, err, "%s", d.out)
	port := d.vars["ROBOCO_SANDBOX_URL"][strings.LastIndex(d.vars["ROBOCO_SANDBOX_URL"], ":")+1:]
	network := []string{"network", "ls", "-q", "--filter", "name=sandboxd-dev-" + port}
	require.Len(t, dockerLines(t, network...), 1)
	require.Equal(t, exitOK, d.stop(), "%s", d.out)
	require.Empty(t, dockerLines(t, "ps", "-aq", "--filter", "label=roboco.sandbox.cell=dev-"+port))
	require.Empty(t, dockerLines(t, network...))
}

// A start that cannot succeed says which variable and which address, and never a password.
func TestStartFailures(t *testing.T) {
	t.Parallel()
	badSeed := filepath.Join(t.TempDir(), "seed.yaml")
	require.NoError(t, os.WriteFile(badSeed, []byte("project: []\n"), 0o600))
	orphan, unknown, shape := badSeed+"-orphan", badSeed+"-unknown", badSeed+"-shape"
	require.NoError(t, os.WriteFile(orphan, []byte("projects: [{slug: shop}]\nagents: [{slug: a, project: nope}]\n"), 0o600))
	require.NoError(t, os.WriteFile(unknown, []byte("projects: [{slug: shop, sandbox_service: [redis]}]\n"), 0o600))
	require.NoError(t, os.WriteFile(shape, []byte("projects: [{slug: shop, sandbox_services: redis}]\n"), 0o600))
	for _, c := range []struct {
		name string
		args []string
		env  []string
		code int
		says []string
	}{
		{"unknown variable", []string{"gateway"}, []string{"ROBOCO_SANDBOX_LISTN=x"}, exitUsage, []string{"ROBOCO_SANDBOX_LISTN", "ROBOCO_SANDBOX_LISTEN"}},
		{"unknown command", []string{"wroker"}, nil, exitUsage, []string{"wroker", "--help"}},
		{"no database", []string{"migrate"}, nil, exitUsage, []string{"ROBOCO_DATABASE_URL"}},
		{"no redis", []string{"gateway"}, []string{"ROBOCO_REDIS_URL=redis://u:hunter2@" + nowhere}, exitFailed, []string{"ROBOCO_REDIS_URL", nowhere}},
		{"postgres down", []string{"migrate"}, []string{"ROBOCO_DATABASE_URL=postgres://u:hunter2@" + nowhere + "/d"}, exitFailed, []string{"ROBOCO_DATABASE_URL", nowhere}},
		{"redis CA without TLS", []string{"gateway"}, []string{"ROBOCO_REDIS_TLS_CA=/nowhere"}, exitUsage, []string{"ROBOCO_REDIS_URL", "rediss://"}},
		{"no redis CA", []string{"gateway"}, []string{"ROBOCO_REDIS_URL=rediss://" + nowhere, "ROBOCO_REDIS_TLS_CA=/nowhere"}, exitUsage, []string{"ROBOCO_REDIS_TLS_CA", "/nowhere"}},
		{"no redis certificate", []string{"gateway"}, []string{"ROBOCO_REDIS_URL=rediss://" + nowhere, "ROBOCO_REDIS_TLS_CERT=/nowhere", "ROBOCO_REDIS_TLS_KEY=/nowhere"}, exitUsage, []string{"ROBOCO_REDIS_TLS_CERT", "/nowhere"}},
		{"TLS in dev", []string{"dev"}, []string{"ROBOCO_SANDBOX_TLS_CERT=/nowhere", "ROBOCO_SANDBOX_TLS_KEY=/nowhere"}, exitUsage, []string{"ROBOCO_SANDBOX_TLS_CERT"}},
		{"no engine", []string{"worker"}, []string{"DOCKER_HOST=unix:///nowhere/docker.sock"}, exitFailed, []string{"/nowhere/docker.sock"}},
		{"no engine in dev", []string{"dev"}, []string{"DOCKER_HOST=unix:///nowhere/docker.sock", "ROBOCO_SANDBOX_LISTEN=127.0.0.1:0"}, exitFailed, []string{"/nowhere/docker.sock"}},
		{"a seed's agent without its project", []string{"dev", "--file", orphan}, []string{"ROBOCO_SANDBOX_LISTEN=203.0.113.1:1"}, exitFailed, []string{orphan, "agent a", `"nope"`, "shop"}},
		{"a seed's unknown field", []string{"dev", "--file", unknown}, []string{"ROBOCO_SANDBOX_LISTEN=203.0.113.1:1"}, exitFailed, []string{unknown, "line 1: field sandbox_service is not known; allowed: slug, name, sandbox_services, sandbox_extensions"}},
		{"a seed's wrong shape", []string{"dev", "--file", shape}, nil, exitFailed, []string{shape, "line 1: must be a list, such as [postgres, redis], not `redis`"}},
		{"stores that dev does not read", []string{"dev"}, []string{"ROBOCO_REDIS_URL=nonsense", "ROBOCO_DATABASE_URL=nonsense", "DOCKER_HOST=unix:///nowhere/docker.sock", "ROBOCO_SANDBOX_LISTEN=127.0.0.1:0"}, exitFailed, []string{"/nowhere/docker.sock"}},
		{"a bad setting", []string{"check"}, []string{"ROBOCO_SANDBOX_PIDS=few"}, exitUsage, []string{"ROBOCO_SANDBOX_PIDS", "help environment"}},
		{"nothing wrong", []string{"check"}, []string{"ROBOCO_SANDBOX_PIDS=64"}, exitOK, []string{"ok"}},
		{"the version", []string{"version"}, nil, exitOK, []string{"sandboxd version "}},
		{"no such context", []string{"worker"}, []string{"DOCKER_CONTEXT=nope"}, exitFailed, []string{`"nope"`, "docker context ls"}},
		{"bad seed", []string{"dev", "--file", badSeed}, []string{"ROBOCO_SANDBOX_LISTEN=127.0.0.1:0"}, exitFailed, []string{badSeed, "project"}},
		{"port in use", []string{"dev"}, []string{"ROBOCO_SANDBOX_LISTEN=203.0.113.1:1"}, exitFailed, []string{"ROBOCO_SANDBOX_LISTEN"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var out buffer
			p := program{environ: c.env, out: &out, err: &out, home: func() (string, error) { return t.TempDir(), nil }, patience: 50 * time.Millisecond}
			require.Equal(t, c.code, run(t.Context(), p, c.args), "%s", &out)
			for _, words := range c.says {
				require.Contains(t, out.String(), words)
			}
			require.NotContains(t, out.String(), "hunter2")
		})
	}
}

func TestHelpDocumentsEveryCommandAndVariable(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"worker", "gateway", "dev", "migrate"} {
		var out buffer
		require.Equal(t, exitOK, run(t.Context(), program{out: &out, err: &out}, []string{name, "--help"}))
		require.Contains(t, out.String(), "ROBOCO_", name)
	}
	var out buffer
	require.Equal(t, exitOK, run(t.Context(), program{out: &out, err: &out}, []string{"help", "environment"}))
	for _, v := range variables() {
		require.Contains(t, out.String(), v.Name)
	}
}
