package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/roboco/sandboxd/client"
)

// Ten agents ask fifty times each and hang up most of the time: one sandbox each, and no more.
func TestCallersThatHangUp(t *testing.T) {
	t.Parallel()
	in := install(t)
	in.gateway()
	in.worker()
	in.worker()
	const agents, calls = 10, 50
	var devs []*client.Client
	for i := range agents {
		devs = append(devs, in.begin(fmt.Sprintf("h%d-%s", i, in.cell[:10]), "redis"))
	}
	var g errgroup.Group
	for i, dev := range devs {
		g.Go(func() error {
			dice := rand.New(rand.NewPCG(1, uint64(i)))
			for range calls - 1 {
				ctx, hangUp := context.WithTimeout(t.Context(), time.Duration(dice.IntN(40))*time.Millisecond)
				_, _ = dev.RequestSandbox(ctx, client.SandboxRequest{}, nil) // whatever came of it
				hangUp()
			}
			return persist(t, dev)
		})
	}
	require.NoError(t, g.Wait())
	in.quiet()
	require.Len(t, in.containers(), agents)
	all, err := in.client(in.operator).Sandboxes(t.Context())
	require.NoError(t, err)
	require.Len(t, all, agents)
	for _, id := range in.containers() {
		in.locked(id)
	}
	for _, dev := range devs {
		_, err := dev.EndWork(t.Context(), "i_am_done", "")
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return len(in.containers()) == 0 }, never, 50*time.Millisecond, "ends leave nothing")
}

// persist asks as an agent does: again, where the answer says that this may help.
func persist(t *testing.T, dev *client.Client) error {
	for until := time.Now().Add(never); ; {
		_, err := dev.RequestSandbox(t.Context(), client.SandboxRequest{}, nil)
		var refused *client.Error
		if !errors.As(err, &refused) || !refused.Envelope.Retryable || time.Now().After(until) {
			return err
		}
	}
}

// locked demands that nothing of the host can be reached from inside a container.
func (in *installation) locked(id string) {
	in.t.Helper()
	raw, err := exec.Command("docker", "inspect", id).Output()
	require.NoError(in.t, err)
	var seen []struct {
		HostConfig struct {
			Binds       []string
			Privileged  bool
			CapDrop     []string
			SecurityOpt []string
			PidMode     string
		}
		Mounts []struct{ Type, Source string }
	}
	require.NoError(in.t, json.Unmarshal(raw, &seen))
	require.Len(in.t, seen, 1)
	h := seen[0].HostConfig
	require.Empty(in.t, h.Binds)
	require.False(in.t, h.Privileged)
	require.Equal(in.t, []string{"ALL"}, h.CapDrop)
	require.Contains(in.t, h.SecurityOpt, "no-new-privileges:true")
	require.Empty(in.t, h.PidMode)
	for _, m := range seen[0].Mounts {
		require.NotEqual(in.t, "bind", m.Type, m.Source)
	}
	out, err := exec.Command("docker", "exec", id, "sh", "-c", "ls -d /var/run/docker.sock /run/docker.sock").CombinedOutput()
	require.Error(in.t, err, "the engine's socket is inside: %s", out)
}

// All workers are replaced under load, one after the other: no request fails.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	in := install(t)
	in.gateway()
	workers := []*exec.Cmd{in.worker(), in.worker()}
	const agents = 4
	devs, slugs := make([]*client.Client, agents), make([]string, agents)
	for i := range agents {
		slugs[i] = fmt.Sprintf("r%d-%s", i, in.cell[:10])
		devs[i] = in.begin(slugs[i], "redis")
	}
	chief, err := in.client(in.operator).CreateAgent(t.Context(), "c"+in.cell[:10], "choreographer")
	require.NoError(t, err)
	var stop atomic.Bool
	var answered atomic.Int64
	g, failed := errgroup.WithContext(t.Context())
	for i := range agents {
		g.Go(func() error { return in.lives(devs[i], in.client(chief.Token), slugs[i], &stop, &answered) })
	}
	before := answered.Load()
	for i := range workers {
		for range 2 {
			next := in.worker()
			require.NoError(t, workers[i].Process.Signal(syscall.SIGTERM))
			require.NoError(t, workers[i].Wait(), "a drained worker exits with 0")
			workers[i] = next
			require.Eventually(t, func() bool { return answered.Load() > before || failed.Err() != nil }, never, 10*time.Millisecond, "nothing is answered any more")
			require.NoError(t, context.Cause(failed))
			before = answered.Load()
		}
	}
	stop.Store(true)
	require.NoError(t, g.Wait())
	t.Logf("%d requests answered while the workers were replaced, none failed", answered.Load())
	in.quiet()
}

// lives lets an agent ask, ask again, end its work and begin anew until it is stopped; the first failure ends it.
func (in *installation) lives(dev, chief *client.Client, slug string, stop *atomic.Bool, answered *atomic.Int64) error {
	ctx := in.t.Context()
	for n := 1; !stop.Load(); n++ {
		var passwords []string
		for range 3 {
			env, err := dev.RequestSandbox(ctx, client.SandboxRequest{}, nil)
			if err != nil {
				return fmt.Errorf("task %d of %s: %w", n, slug, err)
			}
			passwords = append(passwords, env.Evidence["redis"].Password)
			answered.Add(1)
		}
		if passwords[0] != passwords[1] || passwords[1] != passwords[2] {
			return fmt.Errorf("task %d of %s: a hit has other credentials", n, slug)
		}
		if _, err := dev.EndWork(ctx, "i_am_done", ""); err != nil {
			return fmt.Errorf("end task %d of %s: %w", n, slug, err)
		}
		data := fmt.Sprintf(`{"task_id":"T-%d","project":"p-%s"}`, n+1, slug)
		_, err := chief.PublishEvent(ctx, client.Event{ID: slug + "-" + fmt.Sprint(n), Source: "test", Type: "work.started", Subject: slug, Data: json.RawMessage(data)})
		if err != nil {
			return fmt.Errorf("begin task %d of %s: %w", n+1, slug, err)
		}
	}
	return nil
}
