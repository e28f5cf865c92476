package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/events/eventstest"
	"github.com/roboco/sandboxd/state/statetest"
)

// never is when something that must happen is taken not to: far beyond what the busiest machine needs.
const never = 3 * time.Minute

// installation is a sandboxd of real processes: what is killed here is killed as an operator would kill it.
type installation struct {
	t        *testing.T
	binary   string
	env      []string
	cell     string
	redis    string
	url      string
	operator string
}

// install builds sandboxd and prepares its stores; nothing runs yet but them.
func install(t *testing.T) *installation {
	t.Helper()
	addr, _ := eventstest.StartOwnRedis(t)
	database := statetest.StartPostgres(t)
	in := &installation{t: t, cell: eventstest.Cell(), redis: addr, operator: uuid.NewString(), binary: filepath.Join(t.TempDir(), "sandboxd")}
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", in.binary, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	network := "sandboxd-test-" + in.cell
	in.env = append(os.Environ(),
		"ROBOCO_REDIS_URL=redis://"+addr, "ROBOCO_DATABASE_URL="+database, "ROBOCO_SANDBOX_DB_ENABLED=true",
		"ROBOCO_SANDBOX_CELL="+in.cell, "ROBOCO_SANDBOX_NETWORK="+network, "ROBOCO_SANDBOX_OPERATOR_TOKEN="+in.operator,
		"ROBOCO_SANDBOX_LISTEN=127.0.0.1:0", "ROBOCO_SANDBOX_WORKER_LISTEN=127.0.0.1:0",
	)
	t.Cleanup(func() {
		for _, id := range in.containers() {
			_ = exec.Command("docker", "rm", "-fv", id).Run()
		}
		_ = exec.Command("docker", "network", "rm", network).Run()
	})
	return in
}

// launch starts one process, and gives the value of a field of the log line that says it is up.
func (in *installation) launch(command, field string) (cmd *exec.Cmd, value string) {
	in.t.Helper()
	cmd = exec.Command(in.binary, command)
	cmd.Env = in.env
	logs, err := cmd.StderrPipe()
	require.NoError(in.t, err)
	require.NoError(in.t, cmd.Start())
	in.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	found := make(chan string, 1)
	go func() {
		s := bufio.NewScanner(logs)
		for s.Scan() {
			var line map[string]any
			if json.Unmarshal(s.Bytes(), &line) == nil {
				if v, ok := line[field].(string); ok {
					found <- v
					break
				}
			}
			in.t.Log(s.Text())
		}
		_, _ = io.Copy(io.Discard, logs)
	}()
	select {
	case value = <-found:
	case <-time.After(never):
		in.t.Fatalf("sandboxd %s did not come up", command)
	}
	return cmd, value
}

func (in *installation) gateway() {
	in.t.Helper()
	_, addr := in.launch("gateway", "listen")
	in.url = "http://" + addr
}

func (in *installation) worker() *exec.Cmd {
	in.t.Helper()
	cmd, _ := in.launch("worker", "probes")
	return cmd
}

func (in *installation) client(token string) *client.Client {
	in.t.Helper()
	c, err := client.New(client.Config{URL: in.url, Token: token})
	require.NoError(in.t, err)
	return c
}

// begin makes a project and a developer, and begins its work; the agent's client is given.
func (in *installation) begin(slug string, services ...string) *client.Client {
	in.t.Helper()
	ctx := in.t.Context()
	op := in.client(in.operator)
	_, err := op.PutProject(ctx, client.Project{Slug: "p-" + slug, Name: "p", Services: services})
	require.NoError(in.t, err)
	dev, err := op.CreateAgent(ctx, slug, "developer")
	require.NoError(in.t, err)
	in.start(slug, "T-1")
	return in.client(dev.Token)
}

// start begins work on a task of the agent's project.
func (in *installation) start(slug, task string) {
	in.t.Helper()
	ctx := in.t.Context()
	chief, err := in.client(in.operator).CreateAgent(ctx, "c"+uuid.NewString()[:8], "choreographer")
	require.NoError(in.t, err)
	data, err := json.Marshal(map[string]string{"task_id": task, "project": "p-" + slug})
	require.NoError(in.t, err)
	_, err = in.client(chief.Token).PublishEvent(ctx, client.Event{ID: uuid.NewString(), Source: "test", Type: "work.started", Subject: slug, Data: data})
	require.NoError(in.t, err)
}

// containers lists the IDs of what lives in this cell.
func (in *installation) containers() []string {
	out, err := exec.Command("docker", "ps", "-aq", "--filter", "label=roboco.sandbox.cell="+in.cell).Output()
	require.NoError(in.t, err)
	return strings.Fields(string(out))
}

// answer is what a request came to.
type answer struct {
	env *client.Envelope
	err error
}

func request(ctx context.Context, c *client.Client, services ...string) <-chan answer {
	ch := make(chan answer, 1)
	go func() {
		env, err := c.RequestSandbox(ctx, client.SandboxRequest{Services: services}, nil)
		ch <- answer{env, err}
	}()
	return ch
}

// A worker is killed between the creation of a container and its record: the request is answered by another worker,
// with one container per engine, and nothing is left over.
func TestKilledWorker(t *testing.T) {
	t.Parallel()
	in := install(t)
	in.gateway()
	doomed := in.worker()
	slug := "k" + in.cell[:12]
	dev := in.begin(slug, "postgres", "redis", "mongo")
	waiting := request(t.Context(), dev)
	require.Eventually(t, func() bool { return len(in.containers()) > 0 }, never, 5*time.Millisecond, "nothing was made")
	require.NoError(t, doomed.Process.Signal(syscall.SIGKILL))
	in.worker()

	got := <-waiting
	require.NoError(t, got.err)
	require.Len(t, got.env.Evidence, 3)
	in.quiet()
	require.Len(t, in.containers(), 3, "one container per engine")
	again := <-request(t.Context(), dev)
	require.NoError(t, again.err)
	for name, e := range got.env.Evidence {
		require.Equal(t, e.Password, again.env.Evidence[name].Password, name)
		require.Equal(t, "reused", again.env.Evidence[name].Outcome)
	}
	_, err := dev.EndWork(t.Context(), "i_am_done", "")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(in.containers()) == 0 }, never, 20*time.Millisecond, "an end leaves nothing")
	in.quiet()
}

// quiet demands that the stream is empty and nothing is pending.
func (in *installation) quiet() {
	in.t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: in.redis})
	defer func() { _ = rdb.Close() }()
	stream := "{" + in.cell + "}:events"
	require.Eventually(in.t, func() bool {
		pending, err := rdb.XPending(context.Background(), stream, "workers").Result()
		return err == nil && pending.Count == 0 && rdb.XLen(context.Background(), stream).Val() == 0
	}, never, 50*time.Millisecond, "the stream is not drained")
}

// SIGTERM in the middle of a provision: it is finished first, and the process ends with 0.
func TestDrain(t *testing.T) {
	t.Parallel()
	in := install(t)
	in.gateway()
	w := in.worker()
	dev := in.begin("d"+in.cell[:12], "redis")
	waiting := request(t.Context(), dev)
	require.Eventually(t, func() bool { return len(in.containers()) > 0 }, never, 5*time.Millisecond, "nothing was made")
	require.NoError(t, w.Process.Signal(syscall.SIGTERM))
	got := <-waiting
	require.NoError(t, got.err)
	require.NoError(t, w.Wait(), "a drained worker exits with 0")
}

// A request right after an end never gets the ended sandbox: end and request without a pause, two workers.
func TestRequestRightAfterAnEnd(t *testing.T) {
	t.Parallel()
	in := install(t)
	in.gateway()
	in.worker()
	in.worker()
	slug := "e" + in.cell[:12]
	dev := in.begin(slug, "redis")
	rounds := 8
	if n := os.Getenv("SANDBOXD_END_ROUNDS"); n != "" { // the long run, by hand: 500
		require.NoError(t, json.Unmarshal([]byte(n), &rounds))
	}
	seen := map[string]int{}
	for i := range rounds {
		got := <-request(t.Context(), dev)
		require.NoError(t, got.err, "round %d", i)
		password := got.env.Evidence["redis"].Password
		if before, ok := seen[password]; ok {
			t.Fatalf("round %d got the sandbox of round %d", i, before)
		}
		seen[password] = i
		_, err := dev.EndWork(t.Context(), "i_am_done", "")
		require.NoError(t, err)
		in.start(slug, "T-1")
	}
	in.quiet()
}
