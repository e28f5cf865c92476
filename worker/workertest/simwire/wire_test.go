package simwire

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/worker"
	"github.com/roboco/sandboxd/worker/workertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve gives a client of a simulated engine behind a socket, and a way to end the server early.
func serve(t *testing.T, r worker.Runtime) (c *Client, end func()) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "engine")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, l, r) }()
	var ended atomic.Bool
	end = func() {
		if cancel(); ended.CompareAndSwap(false, true) {
			require.NoError(t, <-done)
		}
	}
	t.Cleanup(end)
	c, err = Dial(socket)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c, end
}

func newSim(t *testing.T) *workertest.Sim {
	t.Helper()
	s := workertest.NewSim(workertest.SimConfig{Seed: 1, Jitter: time.Microsecond})
	t.Cleanup(s.Close)
	return s
}

func launch(e engines.Engine, name string) engines.Launch {
	return engines.Launch{
		Name: name, Labels: map[string]string{"roboco.sandbox": "1"}, Network: "n",
		Spec: e.Describe(engines.Order{Image: e.Feature, Password: "pw", AdminPassword: "admin"}),
	}
}

func TestEveryContainerCallCrossesTheWire(t *testing.T) {
	t.Parallel()
	sim, ctx := newSim(t), t.Context()
	c, _ := serve(t, sim)
	pg, _ := Engines(c).Lookup("postgres")

	require.NoError(t, c.Ping(ctx))
	require.NoError(t, c.EnsureNetwork(ctx, "n"))
	require.Equal(t, []string{"n"}, sim.Networks())
	host, err := c.HostID(ctx)
	require.NoError(t, err)
	require.Equal(t, "simulated-host", host)

	id, err := c.Create(ctx, launch(pg, "x"))
	require.NoError(t, err)
	require.NoError(t, c.Start(ctx, id))
	require.NoError(t, c.Rename(ctx, id, "y"))
	got, err := c.Inspect(ctx, "y")
	require.NoError(t, err)
	want := sim.Containers()[0]
	require.True(t, want.Created.Equal(got.Created))
	want.Created = got.Created
	require.Equal(t, want, got)
	require.True(t, got.Running && got.FirstLife)
	for _, list := range []func() ([]engines.Container, error){
		func() ([]engines.Container, error) { return c.List(ctx, map[string]string{"roboco.sandbox": "1"}) },
		func() ([]engines.Container, error) { return c.ListNamed(ctx, "y") },
	} {
		all, err := list()
		require.NoError(t, err)
		require.Len(t, all, 1)
		require.Equal(t, id, all[0].ID)
	}
	none, err := c.ListNamed(ctx, "z")
	require.NoError(t, err)
	require.Empty(t, none)
	said, err := c.Logs(ctx, id, 5)
	require.NoError(t, err)
	require.Equal(t, "simulated log of y", said)

	a := engines.Access{Addr: got.Addrs[0], Password: "pw", AdminPassword: "admin"}
	require.Eventually(t, func() bool { return pg.Up(ctx, a) == nil }, time.Minute, time.Millisecond)
	require.Error(t, pg.Probe(ctx, a), "the login is not made yet")
	require.NoError(t, pg.Activate(ctx, a, []string{"vector"}))
	require.NoError(t, pg.Verify(ctx, a, []string{"vector"}))
	require.ErrorContains(t, pg.Verify(ctx, a, []string{"postgis"}), "postgis")
	require.NoError(t, pg.Probe(ctx, a))

	whole, err := sim.Capacity(ctx)
	require.NoError(t, err)
	has, err := c.Capacity(ctx)
	require.NoError(t, err)
	require.Equal(t, whole, has)

	exit := make(chan int, 1)
	go func() {
		code, _ := c.WaitExit(ctx, id)
		exit <- code
	}()
	require.True(t, sim.Kill(id, workertest.Exits))
	require.Equal(t, 1, <-exit)
	require.NoError(t, c.Remove(ctx, id, time.Millisecond))
	require.Empty(t, sim.Containers())
}

func TestEventsCrossTheWire(t *testing.T) {
	t.Parallel()
	sim := newSim(t)
	c, _ := serve(t, sim)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	connected, found, ended := make(chan struct{}), make(chan engines.Event, 1), make(chan error, 1)
	go func() {
		ended <- c.Events(ctx, func() { close(connected) }, func(d engines.Event) { found <- d })
	}()
	<-connected
	sim.AgentUp("a1")
	sim.AgentDown("a1", false)
	for _, action := range []engines.Action{engines.Started, engines.Died} {
		e := <-found
		require.Equal(t, "roboco-agent-a1", e.Name)
		require.Equal(t, action, e.Action)
	}
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)

	connected = make(chan struct{})
	go func() { ended <- c.Events(t.Context(), func() { close(connected) }, nil) }()
	<-connected
	sim.BreakFeeds()
	require.ErrorIs(t, <-ended, engines.ErrUnavailable)
}

func TestErrorsKeepTheirKind(t *testing.T) {
	t.Parallel()
	sim, ctx := newSim(t), t.Context()
	c, end := serve(t, sim)
	mongo, _ := Engines(c).Lookup("mongo")
	_, err := c.Create(ctx, launch(mongo, "x"))
	require.NoError(t, err)
	_, err = c.Create(ctx, launch(mongo, "x"))
	require.ErrorIs(t, err, engines.ErrNameTaken)
	require.NotErrorIs(t, err, engines.ErrUnavailable)
	_, err = c.Inspect(ctx, "nobody")
	require.ErrorIs(t, err, engines.ErrNotFound)
	require.ErrorIs(t, c.Remove(ctx, sim.Stranger("s"), 0), engines.ErrForeign)

	sim.SetOdds(0, 1, 1)
	var told atomic.Int32
	err = c.EnsureImage(ctx, "some:image", func(engines.PullProgress) { told.Add(1) })
	var p *engines.PullError
	require.ErrorAs(t, err, &p)
	require.True(t, p.Retryable)
	require.Equal(t, "some:image", p.Image)
	require.ErrorContains(t, p.Cause, "registry")
	require.Positive(t, told.Load())
	sim.SetOdds(0, 0, 0)

	sim.SetDown(true)
	require.ErrorIs(t, c.Ping(ctx), engines.ErrUnavailable)
	sim.Calm()
	end()
	require.ErrorIs(t, c.Ping(ctx), engines.ErrUnavailable, "nobody serves any more")
	require.ErrorAs(t, c.EnsureImage(ctx, "some:image", nil), &p)
	require.ErrorIs(t, p, engines.ErrUnavailable)
}

// hung is an engine whose Inspect never answers; it says when its caller's context has ended.
type hung struct {
	worker.Runtime
	began, ended chan struct{}
}

func (h hung) Inspect(ctx context.Context, _ string) (engines.Container, error) {
	close(h.began)
	<-ctx.Done()
	close(h.ended)
	return engines.Container{}, errors.New("hung up")
}

func TestCancellationCrossesTheWire(t *testing.T) {
	t.Parallel()
	h := hung{newSim(t), make(chan struct{}), make(chan struct{})}
	c, _ := serve(t, h)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-h.began; cancel() }()
	_, err := c.Inspect(ctx, "x")
	require.ErrorIs(t, err, engines.ErrUnavailable)
	require.ErrorIs(t, err, context.Canceled)
	<-h.ended
}

// Each method of the interface is used above; a new one has to come here.
func TestNoMethodIsForgotten(t *testing.T) {
	t.Parallel()
	all := reflect.TypeFor[worker.Runtime]()
	require.Equal(t, all.NumMethod()+1, len(methods()), "every method of the runtime, and query")
}
