package verbs_test

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/verbs"
)

// row is one row of the API that needs a token: who may call it, and what is sent.
type row struct {
	method, path, body string
	roles              []string // that may; nil = any
}

// rows is every row of the API that needs a token.
func rows() []row {
	operators := []string{ops}
	return []row{
		{"POST", "/api/v1/do/request_sandbox", "", nil},
		{"POST", "/api/v1/do/i_am_idle", "", nil},
		{"GET", "/api/v1/requests/0190a8b4-0000-7000-8000-000000000000/events", "", nil},
		{"GET", "/api/v1/sandbox", "", nil},
		{"GET", "/api/v1/sandbox/logs", "", nil},
		{"GET", "/api/v1/engines", "", nil},
		{"GET", "/api/v1/verbs", "", nil},
		{"POST", "/mcp", "", nil},
		{"POST", "/api/v1/events", `{"id":"e","type":"agent.stopped","source":"t","subject":"be-dev-1","data":{"owner":"none@0"}}`, []string{choreo}},
		{"GET", "/api/v1/projects/shop/spawn", "", []string{choreo, ops}},
		{"GET", "/api/v1/projects", "", operators},
		{"GET", "/api/v1/projects/shop", "", operators},
		{"PUT", "/api/v1/projects/shop", `{}`, operators},
		{"PATCH", "/api/v1/projects/shop", `{}`, operators},
		{"DELETE", "/api/v1/projects/shop", "", operators},
		{"GET", "/api/v1/agents", "", operators},
		{"POST", "/api/v1/agents", `{"slug":"x","role":"qa"}`, operators},
		{"POST", "/api/v1/agents/nobody/token", "", operators},
		{"DELETE", "/api/v1/agents/nobody", "", operators},
		{"GET", "/api/v1/requests", "", operators},
		{"GET", "/api/v1/dead", "", operators},
		{"GET", "/api/v1/dead/" + letterID, "", operators},
		{"POST", "/api/v1/dead/" + letterID + "/retry", "", operators},
		{"DELETE", "/api/v1/dead/" + letterID, "", operators},
		{"GET", "/api/v1/sandboxes", "", operators},
		{"DELETE", "/api/v1/sandboxes/be-dev-2", "", operators},
		{"GET", "/api/v1/sandboxes/be-dev-2/logs", "", operators},
		{"GET", "/api/v1/flags/sandbox_db_enabled", "", operators},
		{"PUT", "/api/v1/flags/sandbox_db_enabled", `{"value":null}`, operators},
	}
}

func authTests() []test {
	return []test{
		{"every row refuses who has no token, or one that is not known", func(s *scene) {
			for _, x := range rows() {
				a := s.call("", x.method, x.path, x.body)
				s.refused(a, http.StatusUnauthorized, client.CodeUnauthorized)
				require.Contains(s, a.header.Get("WWW-Authenticate"), "Bearer", x.path)
				s.refused(s.call("nobody", x.method, x.path, x.body), http.StatusUnauthorized, client.CodeUnauthorized)
				s.refused(s.call("", x.method, x.path, x.body, "Authorization: Basic "+dev+"-token"), http.StatusUnauthorized, client.CodeUnauthorized)
			}
		}},
		{"every row refuses the roles it is not for", func(s *scene) {
			s.work()
			for _, x := range rows() {
				for _, slug := range []string{dev, qa, doc, choreo, ops} {
					a := s.call(slug, x.method, x.path, x.body)
					if x.roles == nil || contains(x.roles, slug) {
						require.NotEqual(s, http.StatusForbidden, a.status, "%s %s as %s: %s", x.method, x.path, slug, a.body)
						continue
					}
					s.refused(a, http.StatusForbidden, client.CodeForbidden)
				}
			}
		}},
		{"the configured operator is an operator, and no agent", func(s *scene) {
			require.Equal(s, http.StatusOK, s.call(operator, "GET", "/api/v1/agents", "").status)
			s.refused(s.call(operator, "GET", "/api/v1/sandbox", ""), http.StatusForbidden, client.CodeForbidden)
			s.refused(s.call(operator, "GET", "/api/v1/sandbox/logs", ""), http.StatusForbidden, client.CodeForbidden)
			s.refused(s.call(operator, "POST", "/api/v1/do/i_am_done", ""), http.StatusForbidden, client.CodeForbidden)
			m, err := s.as(operator).Verbs(s.Context())
			require.NoError(s, err)
			require.False(s, m.Carries("i_am_done"), "the manifest says so")
			m, err = s.as(ops).Verbs(s.Context())
			require.NoError(s, err)
			require.True(s, m.Carries("i_am_done"), "an agent that is an operator has it")
		}},
		{"revoking an agent takes its sandbox too, and nobody else's", func(s *scene) {
			s.work()
			for _, slug := range []string{dev, other} {
				s.engage(slug, task)
				s.call(slug, "POST", requestPath, "")
			}
			require.Equal(s, http.StatusNoContent, s.call(ops, "DELETE", "/api/v1/agents/"+dev, "").status)
			_, err := s.bus.Sandbox(s.Context(), dev, false)
			require.ErrorIs(s, err, events.ErrExpired)
			_, err = s.bus.Sandbox(s.Context(), other, false)
			require.NoError(s, err)
			require.Equal(s, http.StatusNoContent, s.call(ops, "DELETE", "/api/v1/agents/"+doc, "").status, "one that never had any")
		}},
		{"a revoked token is worth nothing at once, a new one works at once", func(s *scene) {
			require.Equal(s, http.StatusOK, s.call(dev, "GET", "/api/v1/verbs", "").status)
			require.Equal(s, http.StatusNoContent, s.call(ops, "DELETE", "/api/v1/agents/"+dev, "").status)
			s.refused(s.call(dev, "GET", "/api/v1/verbs", ""), http.StatusUnauthorized, client.CodeUnauthorized)
			made, err := s.as(ops).NewToken(s.Context(), dev)
			require.NoError(s, err)
			got := s.call("", "GET", "/api/v1/verbs", "", "Authorization: Bearer "+made.Token)
			require.Equal(s, http.StatusOK, got.status)
			// Replacing it takes the one before away.
			_, err = s.as(ops).NewToken(s.Context(), dev)
			require.NoError(s, err)
			s.refused(s.call("", "GET", "/api/v1/verbs", "", "Authorization: Bearer "+made.Token), http.StatusUnauthorized, client.CodeUnauthorized)
		}},
		{"a verified token is believed while the store is down, an unknown one is a 503", func(s *scene) {
			require.Equal(s, http.StatusOK, s.call(dev, "GET", "/api/v1/verbs", "").status)
			s.store.down.Store(true)
			require.Equal(s, http.StatusOK, s.call(dev, "GET", "/api/v1/verbs", "").status)
			a := s.call(qa, "GET", "/api/v1/verbs", "")
			s.refused(a, http.StatusServiceUnavailable, client.CodeUnavailable)
			require.True(s, a.env.Retryable)
			require.Positive(s, a.env.RetryAfterMS)
			require.Contains(s, a.env.Message, "Postgres")
			require.Equal(s, http.StatusOK, s.call(operator, "GET", "/api/v1/verbs", "").status, "the configured token needs no store")
		}},
		{"a token older than the cache is believed only while the store is down", func(s *scene) {
			s.config.TokenCacheTTL = 50 * time.Millisecond
			s.config.Register = nil
			s.url = s.serve(s.config)
			require.Equal(s, http.StatusOK, s.call(dev, "GET", "/api/v1/verbs", "").status)
			before := s.store.asked.Load()
			s.eventually("it is looked up again", func() bool {
				require.Equal(s, http.StatusOK, s.call(dev, "GET", "/api/v1/verbs", "").status)
				return s.store.asked.Load() > before
			})
			s.store.down.Store(true)
			s.eventually("what was verified long ago is not believed for ever", func() bool {
				return s.call(dev, "GET", "/api/v1/verbs", "").status == http.StatusServiceUnavailable
			})
		}},
		{"each agent has its own rate", func(s *scene) {
			s.config.Rate = 1
			s.config.Register = nil
			s.url = s.serve(s.config)
			for range 2 {
				require.Equal(s, http.StatusOK, s.call(dev, "GET", "/api/v1/verbs", "").status)
			}
			a := s.call(dev, "GET", "/api/v1/verbs", "")
			s.refused(a, http.StatusTooManyRequests, client.CodeRateLimited)
			require.True(s, a.env.Retryable)
			require.Positive(s, a.env.RetryAfterMS)
			require.LessOrEqual(s, a.env.RetryAfterMS, int64(1000))
			require.Equal(s, "1", a.header.Get("Retry-After"))
			require.Equal(s, http.StatusOK, s.call(qa, "GET", "/api/v1/verbs", "").status, "another agent's rate is its own")
			for range 5 {
				require.Equal(s, http.StatusOK, s.call(choreo, "GET", "/api/v1/projects/x/spawn", "").status, "an agent's start is never refused")
			}
		}},
		{"calls are named: by the caller where it is well-formed, else anew", func(s *scene) {
			const trace = "0af7651916cd43dd8448eb211c80319c"
			a := s.call("", "GET", "/api/v1/verbs", "", "Traceparent: 00-"+trace+"-b7ad6b7169203331-01")
			require.Equal(s, trace, a.env.CorrelationID)
			a = s.call("", "GET", "/api/v1/verbs", "", "X-Correlation-Id: run-42")
			require.Equal(s, "run-42", a.env.CorrelationID)
			require.Equal(s, "run-42", a.header.Get("X-Correlation-Id"))
			for _, bad := range []string{"with space", strings.Repeat("x", 129)} {
				a = s.call("", "GET", "/api/v1/verbs", "", "X-Correlation-Id: "+bad)
				require.Regexp(s, `^[0-9a-f]{32}$`, a.env.CorrelationID)
			}
			require.Regexp(s, `^[0-9a-f]{8}-[0-9a-f]{4}-7`, a.env.RequestID)
		}},
		{"roles and verbs are told, with who the caller is", func(s *scene) {
			m, err := s.as(qa).Verbs(s.Context())
			require.NoError(s, err)
			require.Equal(s, qa, m.Agent)
			require.Equal(s, "qa", m.Role)
			require.True(s, m.Carries(verbs.RequestSandbox))
			require.Len(s, m.Verbs, 7)
			m, err = s.as(doc).Verbs(s.Context())
			require.NoError(s, err)
			require.False(s, m.Carries(verbs.RequestSandbox))
			require.True(s, m.Carries("i_documented"))
		}},
	}
}

func contains(list []string, x string) bool {
	return slices.Contains(list, x)
}
