package verbs_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/events"
)

const requestPath = "/api/v1/do/request_sandbox"

func requestTests() []test {
	return []test{
		{"the whole set, then a part of it: the same credentials", func(s *scene) {
			s.work()
			s.engage(dev, task)
			a := s.call(dev, "POST", requestPath, "")
			require.Equal(s, http.StatusOK, a.status, a.body)
			s.complete(a.body)
			require.Nil(s, a.env.Error)
			require.Equal(s, "in_progress", a.env.Status)
			require.Equal(s, task, *a.env.TaskID)
			require.Len(s, a.env.Evidence, 3)
			require.NotContains(s, a.body, `"message"`)
			pg := a.env.Evidence["postgres"]
			require.Equal(s, "roboco-sandbox-pg-"+dev, pg.Host)
			require.Equal(s, 5432, pg.Port)
			require.Equal(s, "sandbox", *pg.User)
			require.Equal(s, "sandbox", *pg.Database)
			require.Equal(s, s.worker.password, pg.Password)
			require.Equal(s, "created", pg.Outcome)
			require.Contains(s, pg.URL, s.worker.password)
			require.Equal(s, s.worker.password, pg.Env["ROBOCO_TEST_DB_PASSWORD"])
			require.WithinDuration(s, time.Now().Add(time.Hour), pg.ExpiresAt, time.Minute)
			require.Equal(s, "admin", a.env.Evidence["mongo"].AuthDatabase)
			s.exactEvidence(a.body)

			a = s.call(dev, "POST", requestPath, `{"services":["redis"],"extensions":null}`, "Content-Type: text/plain")
			require.Equal(s, http.StatusOK, a.status, a.body)
			require.Len(s, a.env.Evidence, 1)
			require.Equal(s, "reused", a.env.Evidence["redis"].Outcome)
			require.Equal(s, s.worker.password, a.env.Evidence["redis"].Password)
			require.Equal(s, 1, s.worker.provisions(dev))
		}},
		{"features are told, redis has them as modules too", func(s *scene) {
			s.work()
			s.engage(dev, task)
			env, err := s.as(dev).RequestSandbox(s.Context(), client.SandboxRequest{
				Extensions: map[string][]string{"postgres": {"vector", "citext"}, "redis": {"json"}},
			}, nil)
			require.NoError(s, err)
			require.Equal(s, []string{"citext", "vector"}, env.Evidence["postgres"].AvailableExtensions)
			require.Nil(s, env.Evidence["postgres"].AvailableModules)
			require.Equal(s, []string{"json"}, env.Evidence["redis"].AvailableExtensions)
			require.Equal(s, []string{"json"}, env.Evidence["redis"].AvailableModules)
			require.Nil(s, env.Evidence["mongo"].AvailableExtensions)
		}},
		{"refusals are HTTP 200 and complete, in whatever role", func(s *scene) {
			s.work()
			a := s.call(doc, "POST", requestPath, "")
			s.refused(a, http.StatusOK, client.CodeInvalidState)
			require.Contains(s, a.env.Remediate, "developer, qa")
			require.False(s, a.env.Retryable)
			s.refused(s.call(operator, "POST", requestPath, ""), http.StatusOK, client.CodeInvalidState)
			a = s.call(dev, "POST", requestPath, "")
			s.refused(a, http.StatusOK, client.CodeInvalidState)
			require.Contains(s, a.env.Remediate, "give_me_work")
			s.engage(dev, task)
			a = s.call(dev, "POST", requestPath, `{"services":["cassandra"]}`)
			s.refused(a, http.StatusOK, client.CodeInvalidState)
			require.Contains(s, a.env.Message, "cassandra")
		}},
		{"a failed provision is told with its cause", func(s *scene) {
			s.worker.fail = &events.Refusal{Guard: 8, Message: "postgres exited with code 3", Remediate: "Call again.", Retryable: true, RetryAfterMS: 1234}
			s.work()
			s.engage(dev, task)
			a := s.call(dev, "POST", requestPath, "")
			s.refused(a, http.StatusOK, client.CodeInvalidState)
			require.Equal(s, "postgres exited with code 3", a.env.Message)
			require.True(s, a.env.Retryable)
			require.EqualValues(s, 1234, a.env.RetryAfterMS)
			require.Equal(s, task, *a.env.TaskID)
			require.Empty(s, a.env.Evidence)
		}},
		{"guard 7: nobody took it, and nothing comes of it later", func(s *scene) {
			s = s.hasty()
			s.engage(dev, task)
			a := s.call(dev, "POST", requestPath, "")
			s.refused(a, http.StatusOK, client.CodeInvalidState)
			require.True(s, a.env.Retryable)
			require.Positive(s, a.env.RetryAfterMS)
			require.Contains(s, strings.ToLower(a.env.Remediate), "retry")
			s.work()
			s.eventually("the worker has read everything", func() bool {
				g, err := s.bus.Gauges(s.Context())
				return err == nil && g.StreamLength == 0 && g.Pending == 0
			})
			require.Zero(s, s.worker.provisions(dev))
			_, err := s.bus.Sandbox(s.Context(), dev, false)
			require.ErrorIs(s, err, events.ErrExpired)
		}},
		{"who stops waiting cancels nothing, and the next call joins", func(s *scene) {
			s.worker.hold = make(chan struct{})
			s.work()
			s.engage(dev, task)
			ctx, cancel := context.WithCancel(s.Context())
			gone := make(chan error, 1)
			accepted := make(chan struct{}, 100)
			go func() {
				_, err := s.as(dev).RequestSandbox(ctx, client.SandboxRequest{}, func(p client.Progress) {
					if p.Stage == "accepted" {
						accepted <- struct{}{}
					}
				})
				gone <- err
			}()
			receive(s, accepted)
			cancel()
			require.Error(s, receive(s, gone))
			joined := make(chan answered, 1)
			go func() { joined <- s.call(dev, "POST", requestPath, "") }()
			close(s.worker.hold)
			a := receive(s, joined)
			require.Equal(s, http.StatusOK, a.status, a.body)
			require.Len(s, a.env.Evidence, 3)
			require.Equal(s, 1, s.worker.provisions(dev))
		}},
		{"a provision that outlasts the limit is told so, and goes on", func(s *scene) {
			s.worker.hold = make(chan struct{})
			s.config.RequestLimit = 300 * time.Millisecond
			s.config.Register = nil
			s.url = s.serve(s.config)
			s.work()
			s.engage(dev, task)
			a := s.call(dev, "POST", requestPath, "")
			s.refused(a, http.StatusOK, client.CodeInvalidState)
			require.True(s, a.env.Retryable)
			require.Contains(s, a.env.Remediate, "joins")
			close(s.worker.hold)
			s.eventually("it is made all the same", func() bool {
				rec, err := s.bus.Sandbox(s.Context(), dev, false)
				return err == nil && len(rec.Engines) == 3
			})
		}},
		{"two gateways: an agent may ask at either", func(s *scene) {
			first := s.url
			cfg := s.config
			cfg.Register, cfg.GatewayName = nil, ""
			second := s.serve(cfg)
			s.work()
			s.engage(dev, task)
			var wg sync.WaitGroup
			answers := make([]answered, 8)
			for i := range answers {
				one := *s
				one.url = []string{first, second}[i%2]
				wg.Go(func() { answers[i] = one.call(dev, "POST", requestPath, "") })
			}
			wg.Wait()
			for _, a := range answers {
				require.Len(s, a.env.Evidence, 3, a.body)
			}
			require.Equal(s, 1, s.worker.provisions(dev))
		}},
		{"each agent gets its own, at the same time", func(s *scene) {
			s.work()
			var wg sync.WaitGroup
			for _, slug := range []string{dev, other, qa} {
				s.engage(slug, task)
				wg.Go(func() {
					a := s.call(slug, "POST", requestPath, `{"services":["postgres"]}`)
					if a.env.Evidence["postgres"].Host != "roboco-sandbox-pg-"+slug {
						s.Errorf("%s got %s", slug, a.body)
					}
				})
			}
			wg.Wait()
		}},
		{"the event carries role, trace and gateway", func(s *scene) {
			seen := make(chan events.Event, 1)
			ctx, cancel := context.WithCancel(s.Context())
			consumed := make(chan error, 1)
			go func() {
				consumed <- s.bus.Consume(ctx, events.ConsumeOptions{Name: "look", Slots: 1}, func(ctx context.Context, d events.Delivery) {
					seen <- d.Event
					_, _ = s.bus.Refuse(ctx, d, events.StateRefused, events.Refusal{Guard: 2, Message: "m", Remediate: "r"}, "")
				})
			}()
			const trace = "0af7651916cd43dd8448eb211c80319c"
			a := s.call(qa, "POST", requestPath, `{"services":["redis"]}`, "Traceparent: 00-"+trace+"-b7ad6b7169203331-01")
			require.Equal(s, trace, a.env.CorrelationID)
			e := receive(s, seen)
			cancel()
			require.NoError(s, receive(s, consumed))
			require.Equal(s, qa, e.Subject)
			require.Contains(s, e.TraceParent, trace)
			var d events.Requested
			require.NoError(s, json.Unmarshal(e.Data, &d))
			require.Equal(s, "qa", d.Role)
			require.Equal(s, a.env.RequestID, d.RequestID)
			require.Equal(s, e.ID, d.RequestID)
			require.Equal(s, []string{"redis"}, d.Services)
			require.Equal(s, s.config.GatewayName, d.Gateway)
		}},
		{"an error of the client holds no password", func(s *scene) {
			s.work()
			s.engage(dev, task)
			_, err := s.as(dev).RequestSandbox(s.Context(), client.SandboxRequest{Services: []string{"nosuch"}}, nil)
			var refused *client.Error
			require.ErrorAs(s, err, &refused)
			require.Equal(s, http.StatusOK, refused.HTTPStatus)
			require.Equal(s, client.CodeInvalidState, refused.Code())
			require.False(s, errors.Is(err, context.Canceled))
			require.NotContains(s, err.Error(), s.worker.password)
		}},
	}
}

// exactEvidence asserts the shape of each engine's evidence as it stands in JSON.
func (s *scene) exactEvidence(body string) {
	s.Helper()
	var raw struct {
		Evidence map[string]map[string]any `json:"evidence"`
	}
	require.NoError(s, json.Unmarshal([]byte(body), &raw))
	always := []string{"host", "port", "user", "password", "database", "url", "outcome", "reason", "expires_at", "env"}
	for name, ev := range raw.Evidence {
		for _, key := range always {
			require.Contains(s, ev, key, name)
		}
		want := len(always)
		if name == "mongo" {
			require.Equal(s, "admin", ev["auth_database"])
			want++
		}
		require.Len(s, ev, want, name)
		env, ok := ev["env"].(map[string]any)
		require.True(s, ok, name)
		for k, v := range env {
			require.NotEmpty(s, v, k)
		}
	}
	require.Nil(s, raw.Evidence["redis"]["user"])
	require.Nil(s, raw.Evidence["redis"]["database"])
}
