package main

import (
	"context"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

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

	c.script(t, "down.sh")
	for _, kind := range [][]string{{"ps", "-aq"}, {"network", "ls", "-q"}, {"volume", "ls", "-q"}} {
		left := dockerLines(t, append(kind, "--filter", "label=com.docker.compose.project="+c.name)...)
		require.Empty(t, left, strings.Join(kind, " "))
	}
	require.NoFileExists(t, c.file)
}
