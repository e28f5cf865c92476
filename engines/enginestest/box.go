package enginestest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/engines"
)

const (
	// pollEvery is how often a server that starts is asked whether it is ready.
	pollEvery = 5 * time.Millisecond
	// patience is how long a test waits for it: many containers start side by side, on a machine that does more.
	patience = 5 * time.Minute
)

// box is one container with a server in it.
type box struct {
	suite
	id          string
	access      engines.Access
	credentials engines.Credentials
	started     time.Time
	spec        engines.Spec
}

// order is what the suite asks of the engine: passwords of its own, and the features' image.
func (s suite) order(features []string) engines.Order {
	o := engines.Order{Image: s.engine.Image(features), Features: features, Password: password(), Memory: s.Memory}
	if _, two := s.engine.Describe(o).Env[engines.EnvAdminPassword]; two {
		o.AdminPassword = password()
	}
	return o
}

// launch creates and starts a container for an order, changed by change, and removes it when the test ends.
func (s suite) launch(t *testing.T, o engines.Order, change func(*engines.Launch)) *box {
	t.Helper()
	ctx := t.Context()
	require.NoError(t, s.Runtime.EnsureImage(ctx, o.Image, func(engines.PullProgress) {}))
	l := engines.Launch{
		Spec: s.spec(t, o), Name: fmt.Sprintf("%s-%s-%s", s.Prefix, s.engine.Short, password()[:8]),
		Labels: s.Labels, Network: s.Network, Memory: s.Memory, NanoCPUs: 1e9, Pids: 256, Loopback: true,
	}
	if change != nil {
		change(&l)
	}
	id, err := s.Runtime.Create(ctx, l)
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := s.Runtime.Remove(context.WithoutCancel(ctx), id, 0); err != nil {
			t.Errorf("remove what the test made: %v", err)
		}
	})
	b := &box{suite: s, id: id, started: time.Now(), spec: l.Spec}
	require.NoError(t, s.Runtime.Start(ctx, id))
	c, err := s.Runtime.Inspect(ctx, id)
	require.NoError(t, err)
	addr := reachable(t, c)
	host, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	number, err := strconv.Atoi(port)
	require.NoError(t, err)
	b.access = engines.Access{Addr: addr, Password: o.Password, AdminPassword: o.AdminPassword}
	b.credentials = s.engine.Credentials(host, number, o.Password)
	return b
}

// spec is the container for an order, of the primed image where the suite is about those.
func (s suite) spec(t *testing.T, o engines.Order) engines.Spec {
	t.Helper()
	if !s.primed {
		return s.engine.Describe(o)
	}
	image, err := s.Prime(t.Context(), s.engine, o.Image)
	require.NoError(t, err)
	o.Image = image
	return s.engine.Primed.Describe(o)
}

// reachable picks the address to dial: the network's where this machine has a route to it.
func reachable(t *testing.T, c engines.Container) string {
	t.Helper()
	require.True(t, len(c.Addrs) > 0 || c.LoopbackPort > 0, "container %s has no address", c.Name)
	if len(c.Addrs) > 0 {
		return c.Addrs[0]
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(c.LoopbackPort))
}

// provision is launch, up and activate: a server as an agent would be given it.
func (s suite) provision(t *testing.T, features []string) *box {
	t.Helper()
	b := s.launch(t, s.order(features), nil)
	b.up(t)
	begin := time.Now()
	require.NoError(t, s.engine.Activate(t.Context(), b.access, features))
	activated := time.Since(begin)
	require.NoError(t, s.engine.Verify(t.Context(), b.access, features))
	require.NoError(t, s.engine.Probe(t.Context(), b.access))
	t.Logf("%s: activated %v in %d ms, ready after %d ms", s.engine.Name, features, activated.Milliseconds(), time.Since(b.started).Milliseconds())
	return b
}

// up waits until the final server answers. A container that exits is an error at once.
func (b *box) up(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	exited := make(chan int, 1)
	go func() {
		if code, err := b.Runtime.WaitExit(ctx, b.id); err == nil {
			exited <- code
		}
	}()
	polls := 0
	for {
		polls++
		err := b.engine.Up(ctx, b.access)
		if err == nil {
			t.Logf("%s: up after %d ms and %d polls", b.engine.Name, time.Since(b.started).Milliseconds(), polls)
			return
		}
		select {
		case code := <-exited:
			t.Fatalf("exited with code %d: %s", code, b.logs(t))
		case <-ctx.Done():
			t.Fatalf("not ready: %v; %s", err, b.logs(t))
		case <-time.After(pollEvery):
		}
	}
}

// logs is the end of the container's log.
func (b *box) logs(t *testing.T) string {
	t.Helper()
	text, err := b.Runtime.Logs(context.WithoutCancel(t.Context()), b.id, 200)
	require.NoError(t, err)
	return text
}

// lives requires that the container runs as it was started, and that its server was not shot and did not give up.
func (b *box) lives(t *testing.T) {
	t.Helper()
	c, err := b.Runtime.Inspect(t.Context(), b.id)
	require.NoError(t, err)
	log := b.logs(t)
	require.True(t, c.Running, "the container has died: %s", log)
	require.True(t, c.FirstLife, "the container was started again")
	require.False(t, c.OOMKilled, "a process was killed for lack of memory: %s", log)
	for _, word := range []string{"PANIC:", "was terminated by signal", b.access.Password} {
		require.NotContains(t, log, word)
	}
	if b.access.AdminPassword != "" {
		require.NotContains(t, log, b.access.AdminPassword)
	}
}

// client opens a client with these credentials, by their connection string.
func (b *box) client(t *testing.T, c engines.Credentials) Client {
	t.Helper()
	cl, err := b.open(t.Context(), c.URL)
	require.NoError(t, err)
	t.Cleanup(func() { cl.Close(context.WithoutCancel(t.Context())) })
	return cl
}

// open opens a client for a connection string of this engine.
func (*box) open(ctx context.Context, url string) (Client, error) {
	scheme, _, _ := strings.Cut(url, "://")
	return openers()[scheme].url(ctx, url)
}

// password is 32 random hex characters.
func password() string {
	p := make([]byte, 16)
	_, _ = rand.Read(p) // never fails
	return hex.EncodeToString(p)
}
