package main

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/client"
)

// composed is a system brought up by scripts/up.sh beside whatever else runs on this machine.
type composed struct {
	name, file, port string
}

// script runs one of the scripts as an operator would.
func (c composed) script(t *testing.T, name string) {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "../../scripts/"+name)
	cmd.Env = cleanEnviron("COMPOSE_PROJECT_NAME="+c.name, "SANDBOXD_ENV_FILE="+c.file, "SANDBOXD_PORT="+c.port,
		"ROBOCO_SANDBOX_NETWORK="+c.name+"_default", "SANDBOXD_DATA_NETWORK="+c.name+"_data", "ROBOCO_SANDBOX_CELL="+c.name)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s: %s", name, out)
}

// reaches says whether a container on this network gets a connection.
func (c composed) reaches(t *testing.T, network, host, port string) bool {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "docker", "run", "--rm", "--network", network, "roboco-sandbox-agent:latest",
		"timeout", "2", "bash", "-c", "</dev/tcp/"+host+"/"+port).CombinedOutput()
	require.NotContains(t, string(out), "Unable to find image")
	return err == nil
}

// address is a service's own on the stores' network.
func (c composed) address(t *testing.T, service string) string {
	t.Helper()
	ids := dockerLines(t, "ps", "-q", "--filter", "label=com.docker.compose.project="+c.name, "--filter", "label=com.docker.compose.service="+service)
	require.NotEmpty(t, ids, service)
	got := dockerLines(t, "inspect", "-f", `{{with index .NetworkSettings.Networks "`+c.name+`_data"}}{{.IPAddress}}{{end}}`, ids[0])
	require.Len(t, got, 1)
	return got[0]
}

// as is a client with this token.
func (c composed) as(t *testing.T, token string) *client.Client {
	t.Helper()
	cl, err := client.New(client.Config{URL: "http://127.0.0.1:" + c.port, Token: token})
	require.NoError(t, err)
	return cl
}

// works takes an agent through everything that touches the stores, so that what their users may do is enough. It leaves
// a sandbox behind.
func (c composed) works(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	settings, err := os.ReadFile(c.file)
	require.NoError(t, err)
	token := regexp.MustCompile(`(?m)^ROBOCO_SANDBOX_OPERATOR_TOKEN=(.+)$`).FindSubmatch(settings)
	require.NotNil(t, token)
	operator := c.as(t, string(token[1]))
	_, err = operator.PutProject(ctx, client.Project{Slug: "shop", Name: "Shop", Services: []string{"redis"}})
	require.NoError(t, err)
	agent, err := operator.CreateAgent(ctx, c.name, "developer")
	require.NoError(t, err)
	conductor, err := operator.CreateAgent(ctx, "conductor", "choreographer")
	require.NoError(t, err)
	developer, choreographer := c.as(t, agent.Token), c.as(t, conductor.Token)
	start := func(event string) {
		_, err := choreographer.PublishEvent(ctx, client.Event{
			ID: event, Type: "work.started", Source: "test", Subject: c.name,
			Data: json.RawMessage(`{"task_id": "T-1", "project": "shop", "status": "in_progress", "owner": "lease"}`),
		})
		require.NoError(t, err)
	}
	start("e-1")
	first, err := developer.RequestSandbox(ctx, client.SandboxRequest{}, nil)
	require.NoError(t, err)
	require.True(t, c.reaches(t, c.name+"_default", first.Evidence["redis"].Host, "6379"), "its name resolves for agents")

	ids := dockerLines(t, "ps", "-q", "--filter", "label=com.docker.compose.project="+c.name, "--filter", "label=com.docker.compose.service=redis")
	dockerLines(t, append([]string{"restart", "--time", "5"}, ids...)...)
	var again *client.Envelope
	require.Eventually(t, func() bool {
		again, err = developer.RequestSandbox(ctx, client.SandboxRequest{}, nil)
		return err == nil
	}, never, 200*time.Millisecond, "after a restart of Redis: %v", err)
	require.Equal(t, first.Evidence["redis"].Password, again.Evidence["redis"].Password, "Redis forgot nothing")

	logs, err := developer.Logs(ctx, client.LogsFilter{})
	require.NoError(t, err)
	require.Contains(t, logs.Logs, "redis")
	all, err := operator.Sandboxes(ctx)
	require.NoError(t, err)
	require.Len(t, all, 1)
	_, err = operator.SetFlag(ctx, nil)
	require.NoError(t, err)
	_, err = developer.EndWork(ctx, "i_am_done", "")
	require.NoError(t, err)
	ours := []string{"ps", "-aq", "--filter", "label=roboco.sandbox.owner=roboco-agent-" + c.name}
	require.Eventually(t, func() bool { return len(dockerLines(t, ours...)) == 0 }, never, 50*time.Millisecond)

	start("e-2")
	_, err = developer.RequestSandbox(ctx, client.SandboxRequest{}, nil)
	require.NoError(t, err)
	require.Len(t, dockerLines(t, ours...), 1)
}

func freePort(t *testing.T) string {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return strconv.Itoa(port(l))
}

// Agents reach the gateway, and neither of its stores; taking it down leaves nothing.
func TestComposeKeepsTheStoresApart(t *testing.T) {
	t.Parallel()
	needDocker(t)
	c := composed{name: unique(t), port: freePort(t)}
	c.file = filepath.Join(t.TempDir(), "settings")
	t.Cleanup(func() { c.script(t, "down.sh") }) // again, when the test failed half-way
	c.script(t, "up.sh")

	agents, data := c.name+"_default", c.name+"_data"
	require.True(t, c.reaches(t, agents, "gateway", "8420"))
	require.True(t, c.reaches(t, data, "redis", "6379"), "the stores answer where they may be reached: the look is a fair one")
	require.True(t, c.reaches(t, data, "postgres", "5432"))
	for service, port := range map[string]string{"redis": "6379", "postgres": "5432"} {
		require.False(t, c.reaches(t, agents, service, port), "%s by name", service)
		require.False(t, c.reaches(t, agents, c.address(t, service), port), "%s by address", service)
	}
	require.Len(t, dockerLines(t, "ps", "-q", "--filter", "label=com.docker.compose.project="+c.name, "--filter", "label=com.docker.compose.service=worker"), 2)
	gateway, err := client.New(client.Config{URL: "http://127.0.0.1:" + c.port})
	require.NoError(t, err)
	health, err := gateway.Health(t.Context())
	require.NoError(t, err)
	require.True(t, health.Ready, "%v", health.Checks)

	c.works(t)
	c.script(t, "down.sh") // with a sandbox that lives
	for _, kind := range [][]string{{"ps", "-aq"}, {"network", "ls", "-q"}, {"volume", "ls", "-q"}} {
		left := dockerLines(t, append(kind, "--filter", "label=com.docker.compose.project="+c.name)...)
		require.Empty(t, left, strings.Join(kind, " "))
	}
	require.Empty(t, dockerLines(t, "ps", "-aq", "--filter", "label=roboco.sandbox.owner=roboco-agent-"+c.name))
	require.NoFileExists(t, c.file)
}

// Whatever is documented reaches the services, or the file sets it itself.
func TestComposePassesEverySettingOn(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docker-compose.yml")
	require.NoError(t, err)
	// Inside its own container alone; and files of the host, which up.sh refuses.
	but := []string{"ROBOCO_SANDBOX_WORKER_LISTEN", "ROBOCO_SANDBOX_TLS_CERT", "ROBOCO_SANDBOX_TLS_KEY"}
	for _, v := range variables() {
		if strings.HasPrefix(v.Name, prefix) && !slices.Contains(but, v.Name) {
			require.Regexp(t, `(?m)^ +`+v.Name+`:`, string(text))
		}
	}
}

// A start that cannot succeed says so before anything is started, with the variable's name.
func TestComposeChecksSettingsFirst(t *testing.T) {
	t.Parallel()
	needDocker(t)
	c := composed{name: unique(t), port: freePort(t)}
	c.file = filepath.Join(t.TempDir(), "settings")
	t.Cleanup(func() { c.script(t, "down.sh") })
	up := func(more ...string) string {
		cmd := exec.CommandContext(t.Context(), "../../scripts/up.sh")
		cmd.Env = cleanEnviron(append(more, "COMPOSE_PROJECT_NAME="+c.name, "SANDBOXD_ENV_FILE="+c.file)...)
		out, err := cmd.CombinedOutput()
		require.Error(t, err)
		return string(out)
	}
	require.NoError(t, os.WriteFile(c.file, []byte("SECRET=mine\n"), 0o600))
	require.Contains(t, up(), "was not made by this script")
	require.NoError(t, os.Remove(c.file))
	for set, says := range map[string]string{
		"ROBOCO_SANDBOX_PIDS=few": "ROBOCO_SANDBOX_PIDS", "ROBOCO_SANDBOX_TLL=1h": "nearest is ROBOCO_SANDBOX_TTL", "ROBOCO_SANDBOX_GRACE=soon": "ROBOCO_SANDBOX_GRACE",
	} {
		out := up(set)
		require.Contains(t, out, says)
		require.Contains(t, out, "nothing was started")
	}
	require.Empty(t, dockerLines(t, "ps", "-aq", "--filter", "label=com.docker.compose.project="+c.name))
}
