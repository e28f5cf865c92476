package docker_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/roboco/sandboxd/engines"
)

func TestCreateHardens(t *testing.T) {
	b := onDocker(t)
	l := b.launch("hard", "sleep")
	l.Labels = map[string]string{"roboco.sandbox.cell": b.prefix}
	l.Env = map[string]string{"B": "2", "A": "1=1", engines.EnvPassword: "secret"}
	l.Caps = []string{"CHOWN", "SETUID"}
	l.Tmpfs = []engines.Tmpfs{{Path: "/data", Size: 1 << 20, Mode: "0700", UID: 70, GID: 71}, {Path: "/tmp"}}
	l.User, l.Shm, l.Port, l.Pids = "70:71", 32<<20, 7001, 33
	id := b.start(t, l)

	info, err := b.api.ContainerInspect(t.Context(), id)
	require.NoError(t, err)
	h := info.HostConfig
	require.EqualValues(t, 64<<20, h.Memory)
	require.EqualValues(t, 64<<20, h.MemorySwap, "no swap beyond the memory")
	require.EqualValues(t, 5e8, h.NanoCPUs)
	require.EqualValues(t, 33, *h.PidsLimit)
	require.EqualValues(t, []string{"ALL"}, h.CapDrop)
	require.EqualValues(t, []string{"CAP_CHOWN", "CAP_SETUID"}, h.CapAdd)
	require.Contains(t, h.SecurityOpt, "no-new-privileges:true")
	require.False(t, h.Privileged)
	require.False(t, h.AutoRemove)
	require.Equal(t, container.RestartPolicyDisabled, h.RestartPolicy.Name)
	require.EqualValues(t, 32<<20, h.ShmSize)
	require.Equal(t, map[string]string{"/data": "size=1048576,mode=0700,uid=70,gid=71", "/tmp": ""}, h.Tmpfs)
	require.Empty(t, h.PortBindings)
	require.Empty(t, h.Binds, "no host path, no socket")
	require.Empty(t, h.Mounts)
	require.Empty(t, h.VolumesFrom)
	require.Empty(t, h.Devices)
	require.Empty(t, info.Mounts)
	require.Equal(t, "70:71", info.Config.User)
	require.Equal(t, []string{"NONE"}, info.Config.Healthcheck.Test)
	require.Equal(t, "1", info.Config.Labels["roboco.sandbox"], "the label is there even if the caller forgot it")
	if h.LogConfig.Type == "json-file" || h.LogConfig.Type == "local" {
		require.Equal(t, "8m", h.LogConfig.Config["max-size"])
	}

	c, err := b.Inspect(t.Context(), l.Name)
	require.NoError(t, err)
	require.Equal(t, id, c.ID)
	require.Equal(t, l.Name, c.Name)
	require.Equal(t, plainImage(), c.Image)
	require.Equal(t, b.prefix, c.Labels["roboco.sandbox.cell"])
	require.Equal(t, "1=1", c.Env["A"])
	require.Equal(t, "secret", c.Env[engines.EnvPassword])
	require.True(t, c.Running)
	require.True(t, c.FirstLife)
	require.Equal(t, info.State.StartedAt, c.StartedAt)
	require.Equal(t, id+"@"+info.State.StartedAt, c.Owner())
	require.WithinDuration(t, time.Now(), c.Created, time.Hour)
	require.Zero(t, c.LoopbackPort)
}

// A restart empties a tmpfs: it must show as another life.
func TestRestartIsAnotherLife(t *testing.T) {
	b := onDocker(t)
	id := b.start(t, b.launch("again", "sleep"))
	before, err := b.Inspect(t.Context(), id)
	require.NoError(t, err)
	require.True(t, before.FirstLife)
	none := 0
	require.NoError(t, b.api.ContainerRestart(t.Context(), id, container.StopOptions{Timeout: &none}))
	after, err := b.Inspect(t.Context(), id)
	require.NoError(t, err)
	require.True(t, after.Running)
	require.False(t, after.FirstLife)
	require.NotEqual(t, before.Owner(), after.Owner())
}

func TestCreateSaysWhatIsWrong(t *testing.T) {
	b := onDocker(t)
	l := b.launch("x", "sleep")
	l.Image = run + "/absent:1"
	_, err := b.Create(t.Context(), l)
	require.ErrorIs(t, err, engines.ErrNotFound)
	require.ErrorContains(t, err, l.Image)

	l = b.launch("x", "sleep")
	l.Memory = 1 // less than the engine accepts
	_, err = b.Create(t.Context(), l)
	require.Error(t, err)
	for _, not := range []error{engines.ErrNotFound, engines.ErrUnavailable, engines.ErrNameTaken} {
		require.NotErrorIs(t, err, not, "permanent")
	}
	require.NotContains(t, err.Error(), "secret")

	l = b.launch("x", "sleep")
	l.Network = b.prefix + "-absent"
	id, err := b.Create(t.Context(), l)
	if err == nil { // some engines look for the network only now
		err = b.Start(t.Context(), id)
	}
	require.ErrorContains(t, err, l.Network)
	require.NotErrorIs(t, err, engines.ErrNotFound, "that would be taken for the container")
	left, err := b.ListNamed(t.Context(), b.prefix)
	require.NoError(t, err)
	require.Empty(t, left)
}

// Twenty at once, of one name: one wins, and every other one is told why it did not.
func TestCreateOneName(t *testing.T) {
	b := onDocker(t)
	var mu sync.Mutex
	var made []string
	var g errgroup.Group
	for range 20 {
		g.Go(func() error {
			id, err := b.Create(t.Context(), b.launch("one", "sleep"))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				made = append(made, id)
			case !errors.Is(err, engines.ErrNameTaken):
				return err
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	require.Len(t, made, 1)
	all, err := b.ListNamed(t.Context(), b.prefix)
	require.NoError(t, err)
	require.Len(t, all, 1)
}

// Twenty at once, each with a port on loopback: all of them come up and are reached.
func TestCreateManyOnLoopback(t *testing.T) {
	b := onDocker(t)
	var g errgroup.Group
	for i := range 20 {
		g.Go(func() error {
			l := b.launch(fmt.Sprint(i), "listen", "7001")
			l.Port, l.Loopback = 7001, true
			id, err := b.Create(t.Context(), l)
			if err != nil {
				return err
			}
			if err := b.Start(t.Context(), id); err != nil {
				return err
			}
			c, err := b.Inspect(t.Context(), id)
			if err != nil {
				return err
			}
			if want := fmt.Sprintf("127.0.0.1:%d", c.LoopbackPort); c.LoopbackPort == 0 || len(c.Addrs) != 2 || c.Addrs[1] != want {
				return fmt.Errorf("addresses %v, port %d", c.Addrs, c.LoopbackPort)
			}
			return answers(t.Context(), c.Addrs[1])
		})
	}
	require.NoError(t, g.Wait())
	all, err := b.ListNamed(t.Context(), b.prefix)
	require.NoError(t, err)
	require.Len(t, all, 20)
}

// answers reads the probe's greeting, as the proxy before a published port accepts before the server listens.
func answers(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var err error
	for ctx.Err() == nil {
		var c net.Conn
		if c, err = (&net.Dialer{}).DialContext(ctx, "tcp", addr); err == nil {
			_ = c.SetDeadline(time.Now().Add(time.Second))
			_, err = c.Read(make([]byte, 1))
			_ = c.Close()
		}
		if err == nil {
			return nil
		}
	}
	return fmt.Errorf("%s: %w", addr, err)
}

// The name is the DNS name on the network, also after a rename; the old name is one no more.
func TestNameIsDNS(t *testing.T) {
	b := onDocker(t)
	require.NoError(t, b.EnsureNetwork(t.Context(), b.prefix))
	l := b.launch("server", "listen", "7001")
	l.Network, l.Port = b.prefix, 7001
	server := b.start(t, l)
	c, err := b.Inspect(t.Context(), server)
	require.NoError(t, err)
	require.Len(t, c.Addrs, 1)
	require.NoError(t, answers(t.Context(), c.Addrs[0]))

	dial := func(name, target string) int {
		l := b.launch(name, "dial", b.prefix+target+":7001")
		l.Network = b.prefix
		code, err := b.WaitExit(t.Context(), b.start(t, l))
		require.NoError(t, err)
		return code
	}
	require.Zero(t, dial("first", "-server"))
	renamed := b.prefix + "-renamed"
	require.NoError(t, b.Rename(t.Context(), server, renamed))
	require.Zero(t, dial("second", "-renamed"))
	info, err := b.api.ContainerInspect(t.Context(), server)
	require.NoError(t, err)
	require.NotContains(t, info.NetworkSettings.Networks[b.prefix].Aliases, l.Name)

	require.NoError(t, b.Rename(t.Context(), server, renamed), "to bear it already is no error")
	require.ErrorIs(t, b.Rename(t.Context(), server, b.prefix+"-first"), engines.ErrNameTaken)
	require.ErrorIs(t, b.Rename(t.Context(), "absent", renamed), engines.ErrNotFound)
}

// A caller that has gone gets nothing made.
func TestCreateAfterTheCaller(t *testing.T) {
	b := onDocker(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.Create(ctx, b.launch("late", "sleep"))
	require.ErrorIs(t, err, context.Canceled)
	var g errgroup.Group
	for i := range 10 { // and neither does one that goes meanwhile
		g.Go(func() error {
			ctx, cancel := context.WithCancel(t.Context())
			go cancel()
			id, err := b.Create(ctx, b.launch(fmt.Sprint(i), "sleep"))
			if err == nil {
				return b.Remove(t.Context(), id, 0)
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	left, err := b.ListNamed(t.Context(), b.prefix)
	require.NoError(t, err)
	require.Empty(t, left)
}
