package docker_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/worker/docker"
)

// faulty is an engine that greets well and then does as the handler says.
func faulty(t *testing.T, then http.HandlerFunc, change ...func(*docker.Config)) *docker.Runtime {
	t.Helper()
	var greeted atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		switch {
		case strings.HasSuffix(q.URL.Path, "/_ping") && !greeted.Load():
			w.Header().Set("Api-Version", "1.41")
		case strings.HasSuffix(q.URL.Path, "/info") && !greeted.Load():
			_, _ = w.Write([]byte(`{"ID":"faulty","LoggingDriver":"journald"}`))
		default:
			then(w, q)
		}
	}))
	t.Cleanup(s.Close)
	cfg := docker.Config{Host: "tcp://" + s.Listener.Addr().String()}
	for _, c := range change {
		c(&cfg)
	}
	r, err := docker.Open(t.Context(), cfg)
	require.NoError(t, err)
	greeted.Store(true)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

// calls are all that a worker asks of an engine.
func calls(r *docker.Runtime) map[string]func(context.Context) error {
	id := strings.Repeat("a", 64)
	return map[string]func(context.Context) error{
		"create": func(ctx context.Context) error {
			_, err := r.Create(ctx, engines.Launch{Name: "n", Spec: engines.Spec{Image: "i", Env: map[string]string{"P": "secret"}}})
			return err
		},
		"start":     func(ctx context.Context) error { return r.Start(ctx, id) },
		"rename":    func(ctx context.Context) error { return r.Rename(ctx, id, "m") },
		"inspect":   func(ctx context.Context) error { _, err := r.Inspect(ctx, id); return err },
		"list":      func(ctx context.Context) error { _, err := r.List(ctx, nil); return err },
		"listnamed": func(ctx context.Context) error { _, err := r.ListNamed(ctx, "p"); return err },
		"logs":      func(ctx context.Context) error { _, err := r.Logs(ctx, id, 1); return err },
		"remove":    func(ctx context.Context) error { return r.Remove(ctx, id, time.Millisecond) },
		"wait":      func(ctx context.Context) error { _, err := r.WaitExit(ctx, id); return err },
		"events":    func(ctx context.Context) error { return r.Events(ctx, func() {}, func(engines.Event) {}) },
		"image":     func(ctx context.Context) error { return r.EnsureImage(ctx, "i", nil) },
		"network":   func(ctx context.Context) error { return r.EnsureNetwork(ctx, "w") },
		"host":      func(ctx context.Context) error { _, err := r.HostID(ctx); return err },
		"capacity":  func(ctx context.Context) error { _, err := r.Capacity(ctx); return err },
		"ping":      r.Ping,
	}
}

// An engine that answers nonsense, cuts the line or hangs is never taken for one without containers.
func TestNothingIsKnown(t *testing.T) {
	faults := map[string]http.HandlerFunc{
		"500": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, `{"message":"boom"}`, http.StatusInternalServerError)
		},
		"503": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "later", http.StatusServiceUnavailable) },
		"cut": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"cut in the body": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.Header().Set("Connection", "close") // or the next call may pick up a line that is already dead
			_, _ = w.Write([]byte(`[`))
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
		"hang": func(_ http.ResponseWriter, q *http.Request) {
			_, _ = io.Copy(io.Discard, q.Body) // only then does the server notice that the caller has gone
			<-q.Context().Done()
		},
	}
	for fault, handler := range faults {
		t.Run(fault, func(t *testing.T) {
			r := faulty(t, handler, func(c *docker.Config) { c.CallTimeout = time.Second })
			// With the group, all calls have ended before the engine does.
			t.Run("calls", func(t *testing.T) {
				for name, call := range calls(r) {
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
						defer cancel()
						nothingKnown(t, fault, name, call(ctx))
					})
				}
			})
		})
	}
}

func nothingKnown(t *testing.T, fault, name string, err error) {
	t.Helper()
	if fault == "cut in the body" && slices.Contains([]string{"ping", "start", "rename"}, name) {
		require.NoError(t, err, "the status is the whole answer")
		return
	}
	require.Error(t, err)
	if name != "image" { // there, the failure may be the registry's
		require.ErrorIs(t, err, engines.ErrUnavailable)
	}
	require.NotErrorIs(t, err, engines.ErrNotFound)
	require.NotContains(t, err.Error(), "secret")
}

// A feed that does not stand is not said to.
func TestEventsIsNotConnectedToAFault(t *testing.T) {
	r := faulty(t, func(w http.ResponseWriter, q *http.Request) {
		if strings.HasSuffix(q.URL.Path, "/info") {
			_, _ = w.Write([]byte(`{"SystemTime":"2030-01-02T03:04:05.6Z"}`))
			return
		}
		http.Error(w, "no", http.StatusInternalServerError)
	})
	err := r.Events(t.Context(), func() { t.Error("connected") }, func(engines.Event) { t.Error("an event") })
	require.ErrorIs(t, err, engines.ErrUnavailable)
}

// The engine goes away while the feed stands.
func TestEventsFeedBreaks(t *testing.T) {
	var since atomic.Value
	r := faulty(t, func(w http.ResponseWriter, q *http.Request) {
		if strings.HasSuffix(q.URL.Path, "/info") {
			_, _ = w.Write([]byte(`{"SystemTime":"2030-01-02T03:04:05.6Z"}`))
			return
		}
		since.Store(q.URL.Query().Get("since"))
		_, _ = w.Write([]byte(`{"Type":"container","Action":"die","Actor":{"ID":"x","Attributes":{"name":"n","exitCode":"3","image":"i","a":"b"}},"timeNano":5}`))
	})
	connected := false
	var got []engines.Event
	err := r.Events(t.Context(), func() { connected = true }, func(d engines.Event) { got = append(got, d) })
	require.ErrorIs(t, err, engines.ErrUnavailable)
	require.True(t, connected)
	require.Equal(t, []engines.Event{{Action: engines.Died, ID: "x", Name: "n", ExitCode: 3, Labels: map[string]string{"a": "b"}, Time: time.Unix(0, 5).UTC()}}, got)
	require.Equal(t, "1893553445.600000000", since.Load(), "from the engine's own now on")
}

func TestOldEngineIsRefused(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Api-Version", "1.30") }))
	defer s.Close()
	_, err := docker.Open(t.Context(), docker.Config{Host: "tcp://" + s.Listener.Addr().String()})
	require.ErrorContains(t, err, "1.41 or later is needed")
	require.NotErrorIs(t, err, engines.ErrUnavailable)
}
