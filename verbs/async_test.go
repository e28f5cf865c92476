package verbs_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/client"
)

// async asks for the asynchronous form.
func (s *scene) async(slug, body string) client.Accepted {
	s.Helper()
	a := s.call(slug, "POST", requestPath, body, "Prefer: respond-async, wait=10")
	require.Equal(s, http.StatusAccepted, a.status, a.body)
	require.Equal(s, "respond-async", a.header.Get("Preference-Applied"))
	var acc client.Accepted
	require.NoError(s, json.Unmarshal([]byte(a.body), &acc))
	require.Equal(s, a.header.Get("Location"), acc.Events)
	require.Equal(s, s.bus.ReplyStream(slug, acc.RequestID), acc.ReplyStream)
	return acc
}

// sse is one server-sent event.
type sse struct{ id, name, data string }

// parseEvents reads a whole event stream.
func parseEvents(body string) (out []sse, comments int) {
	var e sse
	lines := bufio.NewScanner(strings.NewReader(body))
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "id":
			e.id = value
		case "event":
			e.name = value
		case "data":
			e.data = value
		case "":
			if value != "" {
				comments++
			} else if e.data != "" {
				out = append(out, e)
				e = sse{}
			}
		}
	}
	return out, comments
}

func asyncTests() []test {
	return []test{
		{"202, then progress and the result as events", func(s *scene) {
			s.work()
			s.engage(dev, task)
			acc := s.async(dev, `{"services":["redis"]}`)
			const named = "X-Correlation-Id: one"
			a := s.call(dev, "GET", acc.Events, "", named)
			require.Equal(s, http.StatusOK, a.status)
			require.Equal(s, "text/event-stream", a.header.Get("Content-Type"))
			got, _ := parseEvents(a.body)
			require.GreaterOrEqual(s, len(got), 3, a.body)
			require.Equal(s, "progress", got[0].name)
			require.JSONEq(s, `{"stage":"accepted"}`, got[0].data)
			last := got[len(got)-1]
			require.Equal(s, "result", last.name)
			s.complete(last.data)
			var env client.Envelope
			require.NoError(s, json.Unmarshal([]byte(last.data), &env))
			require.Equal(s, acc.RequestID, env.RequestID)
			require.Equal(s, "created", env.Evidence["redis"].Outcome)

			// Again from the middle: nothing twice, the result at any rate.
			again, _ := parseEvents(s.call(dev, "GET", acc.Events, "", "Last-Event-ID: "+got[0].id, named).body)
			require.Equal(s, got[1:], again)
			again, _ = parseEvents(s.call(dev, "GET", acc.Events, "", "Last-Event-ID: "+last.id, named).body)
			require.Equal(s, got[len(got)-1:], again)
			again, _ = parseEvents(s.call(dev, "GET", acc.Events, "", "Last-Event-ID: nonsense", named).body)
			require.Equal(s, got, again)
		}},
		{"only the requester may follow, before and after the end, at any gateway", func(s *scene) {
			s.worker.hold = make(chan struct{})
			s.work()
			s.engage(dev, task)
			acc := s.async(dev, "")
			cfg := s.config
			cfg.Register, cfg.GatewayName = nil, ""
			urls := []string{s.url, s.serve(cfg)}
			foreign := func() {
				for _, url := range urls {
					one := *s
					one.url = url
					for _, slug := range []string{other, qa, choreo, ops, operator} {
						s.refused(one.call(slug, "GET", acc.Events, ""), http.StatusNotFound, client.CodeNotFound)
					}
				}
			}
			foreign()
			close(s.worker.hold)
			got, _ := parseEvents(s.call(dev, "GET", acc.Events, "").body)
			require.Equal(s, "result", got[len(got)-1].name)
			foreign()
		}},
		{"nobody took it: unknown to others, and guard 7 for the requester", func(s *scene) {
			s.engage(dev, task)
			acc := s.async(dev, "")
			s.refused(s.call(other, "GET", acc.Events, ""), http.StatusNotFound, client.CodeNotFound)
			got, comments := parseEvents(s.call(dev, "GET", acc.Events, "").body)
			require.Len(s, got, 1)
			require.Equal(s, "result", got[0].name)
			s.complete(got[0].data)
			var env client.Envelope
			require.NoError(s, json.Unmarshal([]byte(got[0].data), &env))
			require.True(s, env.Retryable)
			require.Contains(s, strings.ToLower(env.Remediate), "retry")
			require.Greater(s, comments, 2, "a quiet stream is kept alive")
		}},
		{"what is no request is 404", func(s *scene) {
			for _, id := range []string{"nonsense", "0190a8b4-0000-7000-8000-000000000000", "..%2fx", "%00"} {
				a := s.call(dev, "GET", "/api/v1/requests/"+id+"/events", "")
				require.Equal(s, http.StatusNotFound, a.status, a.body)
			}
		}},
		{"credentials are gone from the events once the work has ended", func(s *scene) {
			s.work()
			s.engage(dev, task)
			acc := s.async(dev, "")
			require.Contains(s, s.call(dev, "GET", acc.Events, "").body, s.worker.password)
			_, err := s.as(dev).EndWork(s.Context(), "i_am_done", "")
			require.NoError(s, err)
			a := s.call(dev, "GET", acc.Events, "")
			require.NotContains(s, a.body, s.worker.password)
			got, _ := parseEvents(a.body)
			var env client.Envelope
			require.NoError(s, json.Unmarshal([]byte(got[len(got)-1].data), &env))
			require.Equal(s, client.CodeInvalidState, *env.Error)
			require.Empty(s, env.Evidence)
		}},
		{"the client follows with progress, across a broken connection", func(s *scene) {
			s.worker.hold = make(chan struct{})
			s.work()
			s.engage(dev, task)
			breaker := newBreaker(s.url)
			s.Cleanup(breaker.close)
			c, err := client.New(client.Config{URL: breaker.url(), Token: dev + "-token", HTTP: breaker.client()})
			require.NoError(s, err)
			var stages []string
			env, err := c.RequestSandbox(s.Context(), client.SandboxRequest{}, func(p client.Progress) {
				stages = append(stages, p.Stage)
				if p.Stage == "accepted" {
					breaker.cut()
					close(s.worker.hold)
				}
			})
			require.NoError(s, err)
			require.Len(s, env.Evidence, 3)
			require.Equal(s, 1, count(stages, "accepted"), "%v", stages)
			require.Contains(s, stages, "creating")
			require.GreaterOrEqual(s, breaker.follows(), 2)
		}},
		{"the client falls back to the plain form", func(s *scene) {
			s.work()
			s.engage(dev, task)
			breaker := newBreaker(s.url)
			s.Cleanup(breaker.close)
			breaker.refuseEvents.Store(true)
			c, err := client.New(client.Config{URL: breaker.url(), Token: dev + "-token", HTTP: breaker.client()})
			require.NoError(s, err)
			env, err := c.RequestSandbox(s.Context(), client.SandboxRequest{Services: []string{"mongo"}}, nil)
			require.NoError(s, err)
			require.Contains(s, env.Evidence, "mongo")
		}},
		{"whoever stops following cancels nothing", func(s *scene) {
			s.worker.hold = make(chan struct{})
			s.work()
			s.engage(dev, task)
			acc := s.async(dev, "")
			ctx, cancel := context.WithCancel(s.Context())
			seen := make(chan struct{})
			ended := make(chan error, 1)
			go func() {
				_, err := s.as(dev).Follow(ctx, acc.RequestID, func(client.Progress) { close(seen) })
				ended <- err
			}()
			<-seen
			cancel()
			require.Error(s, <-ended)
			close(s.worker.hold)
			env, err := s.as(dev).Follow(s.Context(), acc.RequestID, nil)
			require.NoError(s, err)
			require.Len(s, env.Evidence, 3)
		}},
	}
}

func count(list []string, x string) (n int) {
	for _, y := range list {
		if x == y {
			n++
		}
	}
	return n
}
