package verbs_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/events/eventstest"
)

// outage is a scene whose Redis can be cut off, and reached again as it was or empty.
type outage struct {
	*scene

	redis *miniredis.Miniredis
	wire  *wire
}

func newOutage(t *testing.T, accept time.Duration) *outage {
	t.Helper()
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	require.NoError(t, m.Start())
	t.Cleanup(m.Close)
	w := newWire(t, m.Addr())
	return &outage{scene: newScene(t, w.addr, accept), redis: m, wire: w}
}

// wire leads TCP connections on, and can be cut.
type wire struct {
	addr, target string

	mu    sync.Mutex
	in    net.Listener // nil while it is cut
	conns []net.Conn
	gone  sync.WaitGroup
}

func newWire(t *testing.T, target string) *wire {
	t.Helper()
	w := &wire{addr: "127.0.0.1:0", target: target}
	require.NoError(t, w.join())
	t.Cleanup(func() {
		w.cut()
		w.gone.Wait()
	})
	return w
}

// join makes the wire whole, at the address it had.
func (w *wire) join() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	in, err := net.Listen("tcp", w.addr)
	if err != nil {
		return err
	}
	w.in, w.addr = in, in.Addr().String()
	w.gone.Go(func() {
		for {
			c, err := in.Accept()
			if err != nil {
				return
			}
			w.lead(c)
		}
	})
	return nil
}

func (w *wire) lead(c net.Conn) {
	out, err := net.Dial("tcp", w.target)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil || w.in == nil {
		_ = c.Close()
		if err == nil {
			_ = out.Close()
		}
		return
	}
	w.conns = append(w.conns, c, out)
	for _, way := range [][2]net.Conn{{c, out}, {out, c}} {
		w.gone.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			_ = way[0].Close()
		})
	}
}

// cut breaks what is connected and lets nobody connect.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.in != nil {
		_ = w.in.Close()
		w.in = nil
	}
	for _, c := range w.conns {
		_ = c.Close()
	}
	w.conns = nil
}

func TestRedisDown(t *testing.T) {
	t.Parallel()
	s := newOutage(t, time.Second)
	s.engage(dev, task)
	for _, slug := range []string{dev, choreo, ops} {
		s.call(slug, "GET", "/api/v1/verbs", "")
	}
	s.wire.cut()

	t.Log("request_sandbox is guard 7, in every form")
	for _, form := range []string{"Prefer: none", "Prefer: respond-async"} {
		a := s.call(dev, "POST", requestPath, "", form)
		s.refused(a, http.StatusOK, client.CodeInvalidState)
		require.True(t, a.env.Retryable)
		require.Positive(t, a.env.RetryAfterMS)
		require.Contains(t, a.env.Message, "Redis")
		require.Contains(t, strings.ToLower(a.env.Remediate), "retry")
	}
	_, env := s.callTool(s.mcp(dev, nil), nil, nil)
	require.True(t, env.Retryable)
	require.Contains(t, env.Message, "Redis")

	t.Log("everything else that needs it is a retryable 503")
	for _, x := range []struct{ slug, method, path, body string }{
		{dev, "POST", "/api/v1/do/i_am_done", ""},
		{dev, "POST", "/api/v1/do/i_am_done", `{"task_id":"T-1"}`},
		{dev, "GET", "/api/v1/sandbox", ""},
		{dev, "GET", "/api/v1/sandbox/logs", ""},
		{dev, "GET", "/api/v1/requests/0190a8b4-0000-7000-8000-000000000000/events", ""},
		{choreo, "POST", "/api/v1/events", `{"id":"e9","type":"work.ended","source":"t","subject":"be-dev-1","data":{"task_id":"T-1"}}`},
		{ops, "GET", "/api/v1/sandboxes", ""},
		{ops, "DELETE", "/api/v1/sandboxes/be-dev-1", ""},
		{ops, "PUT", "/api/v1/flags/sandbox_db_enabled", `{"value":true}`},
	} {
		a := s.call(x.slug, x.method, x.path, x.body)
		s.refused(a, http.StatusServiceUnavailable, client.CodeUnavailable)
		require.True(t, a.env.Retryable, a.body)
	}

	t.Log("what does not need it goes on, and probes tell")
	_, err := s.as(ops).PutProject(t.Context(), client.Project{Slug: proj, Services: []string{"redis"}})
	require.NoError(t, err)
	a := s.call(choreo, "GET", "/api/v1/projects/shop/spawn", "")
	require.Equal(t, http.StatusOK, a.status)
	require.Contains(t, a.body, `"services":["redis"]`, "the environment's switch counts where the mirror cannot be read")
	require.Equal(t, http.StatusServiceUnavailable, s.call("", "GET", "/readyz", "").status)
	require.Contains(t, s.call("", "GET", "/metrics", "").body, "sandboxd_bus_up 0")

	t.Log("an end that was stored is owed, and none is lost")
	owed, err := s.store.Unpublished(t.Context(), 0, 10)
	require.NoError(t, err)
	require.NotEmpty(t, owed)
}

func TestRedisAwayForAMoment(t *testing.T) {
	t.Parallel()
	s := newOutage(t, patience)
	s.engage(dev, task)
	s.wire.cut()
	answer := make(chan answered, 1)
	go func() { answer <- s.call(dev, "POST", requestPath, "") }()
	s.eventually("the request tries to be published", func() bool {
		return strings.Contains(s.call("", "GET", "/metrics", "").body, "sandboxd_bus_up 0")
	})
	require.NoError(t, s.wire.join())
	s.work()
	a := receive(s.scene, answer)
	require.Len(t, a.env.Evidence, 3, a.body)
	require.Equal(t, 1, s.worker.provisions(dev))
}

func TestRedisForgets(t *testing.T) {
	t.Parallel()
	s := newOutage(t, patience)
	s.engage(dev, task)
	acc := s.async(dev, "")
	followed := make(chan answered, 1)
	go func() { followed <- s.call(dev, "GET", acc.Events, "") }()
	s.redis.FlushAll()
	_, err := s.bus.Check(t.Context())
	require.NoError(t, err)
	s.engage(dev, "T-2") // the request is published again by its follower
	s.work()
	a := receive(s.scene, followed)
	require.Contains(t, a.body, "event: result")
	require.Contains(t, a.body, s.worker.password)
}

func TestStoreDown(t *testing.T) {
	t.Parallel()
	s := newScene(t, eventstest.StartEmbedded(t), patience)
	s.work()
	s.engage(dev, task)
	require.Len(t, s.call(dev, "POST", requestPath, "").env.Evidence, 3)
	s.store.down.Store(true)
	require.Len(t, s.call(dev, "POST", requestPath, "").env.Evidence, 3, "what was verified works on")
	require.Equal(t, http.StatusOK, s.call(dev, "GET", "/api/v1/sandbox", "").status)
	s.refused(s.call(qa, "POST", requestPath, ""), http.StatusServiceUnavailable, client.CodeUnavailable)
}
