package docker_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/engines/enginestest"
	"github.com/roboco/sandboxd/worker/docker"
)

// TestEngines runs the conformance suite of engines on Docker, on a network of its own.
func TestEngines(t *testing.T) {
	if testing.Short() {
		t.Skip("starts containers")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	host := os.Getenv("DOCKER_HOST")
	runtime, err := docker.Open(ctx, docker.Config{Host: host})
	if err != nil && os.Getenv("REQUIRE_DOCKER") != "1" {
		t.Skipf("no Docker: %v", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { _ = runtime.Close() })
	cli, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	require.NoError(t, err)
	t.Cleanup(func() { _ = cli.Close() })

	prefix := "sdt-engines-" + randomWord()
	_, err = cli.NetworkCreate(ctx, prefix, network.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := cli.NetworkRemove(context.WithoutCancel(ctx), prefix); err != nil {
			t.Errorf("remove the test's network: %v", err)
		}
	})
	var priming sync.Mutex // one at a time, and each once
	enginestest.Run(t, enginestest.Config{
		Prime: func(ctx context.Context, e engines.Engine, base string) (string, error) {
			priming.Lock()
			defer priming.Unlock()
			id, err := runtime.ImageID(ctx, base)
			if err != nil {
				return "", err
			}
			d := e.Derivation(base, id)
			if _, err := runtime.ImageID(ctx, d.Tag); err == nil {
				return d.Tag, nil
			}
			return d.Tag, runtime.Derive(ctx, d)
		},
		Runtime: runtime, Registry: engines.Builtin(), Network: prefix, Prefix: prefix,
		Labels: map[string]string{"roboco.sandbox.cell": prefix},
		Processes: func(ctx context.Context, id string) ([]enginestest.Process, error) {
			top, err := cli.ContainerTop(ctx, id, []string{"-eo", "uid,pid,args"})
			if err != nil {
				return nil, err
			}
			var list []enginestest.Process
			for _, row := range top.Processes {
				uid, err := strconv.Atoi(row[0])
				if err != nil {
					return nil, err
				}
				list = append(list, enginestest.Process{UID: uid, Command: strings.Join(row[2:], " ")})
			}
			return list, nil
		},
	})
}

func randomWord() string {
	b := make([]byte, 4)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
