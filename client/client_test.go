package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/roboco/sandboxd/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// against is a client of a gateway that is played by h.
func against(t *testing.T, h http.HandlerFunc) *client.Client {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	c, err := client.New(client.Config{
		URL: srv.URL + "/", Token: "tok", HTTP: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, Timeout: 10 * time.Second,
	})
	require.NoError(t, err)
	return c
}

const secret = "5ec2e75ec2e75ec2e75ec2e75ec2e75e"

func TestNewRefusesWhatIsNoURL(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"localhost:8420", "ftp://x", "http://", "://"} {
		_, err := client.New(client.Config{URL: url})
		require.Error(t, err, url)
	}
	_, err := client.New(client.Config{})
	require.NoError(t, err)
}

func TestErrors(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		status int
		body   string
		want   string
		code   string
	}{
		"an envelope":     {422, `{"status":"error","error":"invalid_input","message":"slug: bad","remediate":"Choose another."}`, "slug: bad (Choose another.)", "invalid_input"},
		"a proxy's page":  {502, `<html>bad gateway</html>`, "the gateway answered 502 Bad Gateway", ""},
		"evidence in one": {409, `{"error":"taken","message":"taken","evidence":{"postgres":{"password":"` + secret + `"}}}`, "taken", "taken"},
		"nothing at all":  {503, ``, "the gateway answered 503 Service Unavailable", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := against(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "Bearer tok" {
					t.Errorf("authorization is %q", r.Header.Get("Authorization"))
				}
				w.WriteHeader(x.status)
				fmt.Fprint(w, x.body)
			})
			_, err := c.Project(t.Context(), "shop")
			var e *client.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, x.status, e.HTTPStatus)
			require.True(t, client.IsStatus(err, x.status))
			require.Equal(t, x.want, err.Error())
			require.Equal(t, x.code, e.Code())
			require.NotContains(t, fmt.Sprintf("%v %+v", err, e.Envelope), secret)
		})
	}
}

func TestAnUnreachableGatewayIsNoRefusal(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.NotFoundHandler())
	url := srv.URL
	srv.Close()
	c, err := client.New(client.Config{URL: url, Token: secret})
	require.NoError(t, err)
	_, err = c.Engines(t.Context())
	var e *client.Error
	require.Error(t, err)
	require.NotErrorAs(t, err, &e)
	require.NotContains(t, err.Error(), secret)
}

// TestRequestSandboxTakesUpABrokenStream: nothing is told twice, Last-Event-ID is sent, odd framing is read.
func TestRequestSandboxTakesUpABrokenStream(t *testing.T) {
	t.Parallel()
	var connections atomic.Int64
	c := against(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusAccepted)
			fmt.Fprint(w, `{"request_id":"r1","events":"/api/v1/requests/r1/events"}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		switch connections.Add(1) {
		case 1:
			fmt.Fprint(w, ": open\n\nid: 1-0\nevent: progress\ndata: {\"stage\":\"accepted\"}\n\nid: 2-0\nevent: prog")
		case 2:
			if r.Header.Get("Last-Event-ID") != "1-0" {
				t.Errorf("Last-Event-ID is %q", r.Header.Get("Last-Event-ID"))
			}
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"error":"unavailable","retryable":true}`)
		default:
			fmt.Fprint(w, "id:2-0\r\nevent:progress\r\ndata:{\"stage\":\"pulling\",\r\ndata:\"done\":5,\"total\":10}\r\n\r\n")
			fmt.Fprint(w, "event: later-version\ndata: {}\n\n")
			fmt.Fprint(w, "id: 3-0\nevent: result\ndata: {\"status\":\"in_progress\",\"error\":null,\"evidence\":{\"redis\":{\"host\":\"h\"}}}\n\n")
		}
	})
	var steps []string
	env, err := c.RequestSandbox(t.Context(), client.SandboxRequest{}, func(p client.Progress) { steps = append(steps, p.ID+" "+p.Words()) })
	require.NoError(t, err)
	require.Equal(t, "h", env.Evidence["redis"].Host)
	require.Equal(t, []string{"1-0 accepted", "2-0 pulling 0.0 of 0.0 MB"}, steps)
}

func TestRequestSandboxFallsBackToThePlainForm(t *testing.T) {
	t.Parallel()
	for name, events := range map[string]http.HandlerFunc{
		"no such path":    http.NotFound,
		"another answer":  func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") },
		"always breaking": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Type", "text/event-stream") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := against(t, func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Method == http.MethodGet:
					events(w, r)
				case r.Header.Get("Prefer") != "":
					w.WriteHeader(http.StatusAccepted)
					fmt.Fprint(w, `{"request_id":"r1"}`)
				default:
					fmt.Fprint(w, `{"status":"error","error":"invalid_state","message":"no","remediate":"do","evidence":{}}`)
				}
			})
			_, err := c.RequestSandbox(t.Context(), client.SandboxRequest{}, nil)
			var e *client.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, http.StatusOK, e.HTTPStatus)
			require.Equal(t, "no (do)", e.Error())
		})
	}
}

func TestRequestSandboxEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	c := against(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusAccepted)
			fmt.Fprint(w, `{"request_id":"r1"}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		cancel()
		<-r.Context().Done()
	})
	_, err := c.RequestSandbox(ctx, client.SandboxRequest{}, nil)
	require.ErrorIs(t, err, context.Canceled)
}

func TestEnvelopeInJSON(t *testing.T) {
	t.Parallel()
	raw, err := json.Marshal(client.Envelope{Status: "in_progress"})
	require.NoError(t, err)
	require.JSONEq(t, `{"status":"in_progress","task_id":null,"next":null,"evidence":{},"context_briefing":null,"error":null,
		"correlation_id":"","request_id":"","retryable":false,"retry_after_ms":0}`, string(raw))
	raw, err = json.Marshal(client.ProjectPatch{SetServices: true})
	require.NoError(t, err)
	require.JSONEq(t, `{"sandbox_services":null}`, string(raw))
}
