package docker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"

	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/worker/docker"
)

func TestHost(t *testing.T) {
	b := onDocker(t)
	require.NoError(t, b.Ping(t.Context()))
	id, err := b.HostID(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, id)
	again, err := onDocker(t).HostID(t.Context())
	require.NoError(t, err)
	require.Equal(t, id, again)
}

// Many processes make the network at once, each with a runtime of its own: one remains, and it can be joined.
func TestEnsureNetworkRace(t *testing.T) {
	b := onDocker(t)
	var others []*docker.Runtime
	for range 6 {
		r, err := docker.Open(t.Context(), docker.Config{Host: host()})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, r.Close()) })
		others = append(others, r)
	}
	var g errgroup.Group
	for _, r := range others {
		g.Go(func() error { return r.EnsureNetwork(t.Context(), b.prefix) })
	}
	require.NoError(t, g.Wait())
	one(t, b)
	require.NoError(t, b.EnsureNetwork(t.Context(), b.prefix), "it exists already")
	l := b.launch("member", "exit", "0", "0")
	l.Network = b.prefix
	code, err := b.WaitExit(t.Context(), b.start(t, l))
	require.NoError(t, err)
	require.Zero(t, code)
}

// Twins that a race has left are settled by whoever comes next; a stranger's is not touched.
func TestEnsureNetworkSettlesTwins(t *testing.T) {
	b := onDocker(t)
	require.NoError(t, b.EnsureNetwork(t.Context(), b.prefix))
	first := one(t, b)
	if !twin(t, b, map[string]string{"roboco.sandbox": "1"}) {
		t.Skip("this engine allows no two networks of one name, even when not asked to check")
	}
	require.NoError(t, b.EnsureNetwork(t.Context(), b.prefix))
	require.Equal(t, first, one(t, b))

	require.True(t, twin(t, b, nil))
	require.NoError(t, b.EnsureNetwork(t.Context(), b.prefix), "ours gives way")
	stranger := one(t, b)
	require.NotEqual(t, first, stranger)
	require.True(t, twin(t, b, nil))
	require.ErrorIs(t, b.EnsureNetwork(t.Context(), b.prefix), engines.ErrForeign)
	for _, n := range named(t, b) {
		require.NoError(t, b.api.NetworkRemove(t.Context(), n.ID))
	}
}

// A container starts although its network got a twin between create and start.
func TestStartSettlesTheNetwork(t *testing.T) {
	b := onDocker(t)
	require.NoError(t, b.EnsureNetwork(t.Context(), b.prefix))
	l := b.launch("twin", "exit", "0", "0")
	l.Network = b.prefix
	id, err := b.Create(t.Context(), l)
	require.NoError(t, err)
	if !twin(t, b, map[string]string{"roboco.sandbox": "1"}) {
		t.Skip("this engine allows no two networks of one name, even when not asked to check")
	}
	require.NoError(t, b.Start(t.Context(), id))
	code, err := b.WaitExit(t.Context(), id)
	require.NoError(t, err)
	require.Zero(t, code)
	one(t, b)
}

func named(t *testing.T, b bench) []network.Summary {
	t.Helper()
	all, err := b.api.NetworkList(t.Context(), network.ListOptions{Filters: filters.NewArgs(filters.Arg("name", b.prefix))})
	require.NoError(t, err)
	return all
}

func one(t *testing.T, b bench) string {
	t.Helper()
	all := named(t, b)
	require.Len(t, all, 1)
	require.Equal(t, "bridge", all[0].Driver)
	return all[0].ID
}

// twin makes a second network of the same name, as a race does, and reports whether the engine allowed it. The API
// client always asks the engine to check the name, so the request is made without it.
func twin(t *testing.T, b bench, labels map[string]string) bool {
	t.Helper()
	body, err := json.Marshal(map[string]any{"Name": b.prefix, "Driver": "bridge", "Labels": labels})
	require.NoError(t, err)
	u, err := client.ParseHostURL(host())
	require.NoError(t, err)
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, u.Scheme, u.Host+u.Path)
	}}
	defer tr.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://docker/v1.41/networks/create", bytes.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Client{Transport: tr}).Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode == http.StatusCreated
}

// The engine at another socket than the usual one.
func TestSocketElsewhere(t *testing.T) {
	b := onDocker(t)
	u, err := client.ParseHostURL(host())
	require.NoError(t, err)
	if u.Scheme != "unix" {
		t.Skip("the engine is not on a unix socket")
	}
	path := filepath.Join(t.TempDir(), "elsewhere.sock")
	relay(t, path, u.Host+u.Path)
	r, err := docker.Open(t.Context(), docker.Config{Host: "unix://" + path})
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	require.Equal(t, "unix://"+path, r.Endpoint())
	want, err := b.HostID(t.Context())
	require.NoError(t, err)
	got, err := r.HostID(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, got)
	id, err := r.Create(t.Context(), b.launch("far", "exit", "3", "0"))
	require.NoError(t, err)
	require.NoError(t, r.Start(t.Context(), id))
	code, err := r.WaitExit(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, 3, code)
}

func TestOpenNamesTheSocket(t *testing.T) {
	absent := "unix://" + filepath.Join(t.TempDir(), "absent.sock")
	_, err := docker.Open(t.Context(), docker.Config{Host: absent})
	require.ErrorIs(t, err, engines.ErrUnavailable)
	require.ErrorContains(t, err, absent)
	require.ErrorContains(t, err, "DOCKER_HOST")

	for _, bad := range []string{"nonsense", "ssh://somewhere", "gopher://x"} {
		_, err = docker.Open(t.Context(), docker.Config{Host: bad})
		require.ErrorContains(t, err, bad)
		require.NotErrorIs(t, err, engines.ErrUnavailable, "no retry will help")
	}
}

// relay copies each connection at the one socket to the other.
func relay(t *testing.T, from, to string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", from)
	require.NoError(t, err)
	var open sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		open.Wait()
	})
	open.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := (&net.Dialer{}).DialContext(t.Context(), "unix", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			pipe := func(dst, src net.Conn) {
				_, _ = io.Copy(dst, src)
				_, _ = dst.Close(), src.Close()
			}
			open.Go(func() { pipe(in, out) })
			open.Go(func() { pipe(out, in) })
		}
	})
}
