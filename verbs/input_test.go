package verbs_test

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/client"
)

// inputTests are the shapes that are refused before anything is published.
func inputTests() []test {
	return []test{
		{"request_sandbox: shapes are 422 and name the field", func(s *scene) {
			s.engage(dev, task)
			for body, names := range map[string][]string{
				`{"services":[]}`:                           {"services", "empty list"},
				`{"services":"postgres"}`:                   {"services", "list of strings", "not a string"},
				`{"services":{"postgres":true}}`:            {"services", "list of strings", "not an object"},
				`{"services":["postgres",7]}`:               {"services[1]", "a number"},
				`{"services":[null]}`:                       {"services[0]", "null"},
				`{"extensions":["vector"]}`:                 {"extensions", "object of lists", "a list"},
				`{"extensions":{"postgres":"vector"}}`:      {"extensions.postgres", "list of strings", "a string"},
				`{"extensions":{"postgres":[["vector"]]}}`:  {"extensions.postgres[0]", "a list"},
				`{"service":["postgres"]}`:                  {"service", "services, extensions"},
				`{"agent":"be-dev-2"}`:                      {"agent", "services, extensions"},
				`{"Services":["postgres"]}`:                 {"Services", "services, extensions"},
				`[]`:                                        {"JSON object"},
				`null`:                                      {"JSON object"},
				`"postgres"`:                                {"JSON object"},
				`services=postgres`:                         {"not JSON"},
				`{"services":["postgres"]} {"services":[]}`: {"not JSON"},
				`{"services":["postgres"]`:                  {"not JSON"},
			} {
				a := s.call(dev, "POST", requestPath, body)
				s.refused(a, http.StatusUnprocessableEntity, client.CodeInvalidInput)
				require.False(s, a.env.Retryable)
				for _, name := range names {
					require.Contains(s, a.env.Message+" "+a.env.Remediate, name, body)
				}
			}
			g, err := s.bus.Gauges(s.Context())
			require.NoError(s, err)
			require.EqualValues(s, 1, g.StreamLength, "only work.started was published")
		}},
		{"names are never 422: they meet the guards", func(s *scene) {
			s.work()
			s.engage(dev, task)
			for _, body := range []string{`{"services":["nosuch"]}`, `{"services":[""]}`, `{"services":["postgres; DROP TABLE"]}`} {
				s.refused(s.call(dev, "POST", requestPath, body), http.StatusOK, client.CodeInvalidState)
			}
		}},
		{"an oversize body is 413 on every row that reads one", func(s *scene) {
			big := `{"services":["` + strings.Repeat("x", 70<<10) + `"]}`
			for _, x := range rows() {
				if x.method != "POST" && x.method != "PUT" && x.method != "PATCH" {
					continue
				}
				slug := dev
				if x.roles != nil {
					slug = x.roles[0]
				}
				a := s.call(slug, x.method, x.path, big, "Accept: application/json, text/event-stream")
				require.Equal(s, http.StatusRequestEntityTooLarge, a.status, "%s: %s", x.path, a.body)
				s.refused(a, http.StatusRequestEntityTooLarge, client.CodeTooLarge)
				s.refused(s.call("nobody", x.method, x.path, big), http.StatusUnauthorized, client.CodeUnauthorized)
			}
		}},
		{"work-ending verbs: unknown fields and shapes are 422", func(s *scene) {
			for body, names := range map[string]string{
				`{"task":"T-1"}`: "task_id", `{"task_id":7}`: "a number", `[]`: "JSON object", `{"task_id":"` + strings.Repeat("x", 300) + `"}`: "task",
			} {
				a := s.call(dev, "POST", "/api/v1/do/i_am_done", body)
				s.refused(a, http.StatusUnprocessableEntity, client.CodeInvalidInput)
				require.Contains(s, a.env.Message, names, body)
			}
		}},
		{"unknown paths and methods are answered with envelopes", func(s *scene) {
			for _, path := range []string{"/nosuch", "/api/v1/nosuch", "/api/v2/projects", "/api/v1/do"} {
				for _, method := range []string{"GET", "POST", "DELETE"} {
					s.refused(s.call(dev, method, path, ""), http.StatusNotFound, client.CodeNotFound)
				}
			}
			for _, x := range []struct{ method, path, allow string }{
				{"GET", requestPath, "POST"},
				{"DELETE", "/api/v1/projects", "GET"},
				{"BREW", "/api/v1/agents", "GET, POST"},
				{"POST", "/healthz", "GET"},
				{"GET", "/mcp", "POST"},
			} {
				a := s.call(dev, x.method, x.path, "")
				s.refused(a, http.StatusMethodNotAllowed, client.CodeNotAllowed)
				require.Equal(s, x.allow, a.header.Get("Allow"))
			}
		}},
		{"engines are described with their allowlists", func(s *scene) {
			list, err := s.as(doc).Engines(s.Context())
			require.NoError(s, err)
			require.Len(s, list, 3)
			require.Equal(s, "postgres", list[0].Name)
			require.Equal(s, []string{"citext", "pg_trgm", "postgis", "uuid-ossp", "vector"}, list[0].Features)
			require.Contains(s, list[0].Env, "ROBOCO_TEST_DB_HOST")
			require.Nil(s, list[1].User)
			require.Equal(s, []string{}, list[2].Features)
		}},
	}
}

func healthTests() []test {
	return []test{
		{"probes, metrics and the index need no token", func(s *scene) {
			require.Equal(s, http.StatusOK, s.call("", "GET", "/healthz", "").status)
			h, err := s.as(dev).Health(s.Context())
			require.NoError(s, err)
			require.True(s, h.Ready)
			require.Contains(s, h.Checks["workers"], "none")
			s.work()
			s.engage(dev, task) // the embedded server knows only consumers that something was delivered to
			s.eventually("the worker is seen", func() bool {
				h, err := s.as(dev).Health(s.Context())
				return err == nil && h.Checks["workers"] == "1"
			})
			s.store.down.Store(true)
			a := s.call("", "GET", "/readyz", "")
			require.Equal(s, http.StatusServiceUnavailable, a.status)
			h, err = s.as(dev).Health(s.Context())
			require.NoError(s, err)
			require.False(s, h.Ready)
			require.Equal(s, "ok", h.Checks["redis"])
			require.NotEqual(s, "ok", h.Checks["store"])
			require.Equal(s, http.StatusOK, s.call("", "GET", "/healthz", "").status)
			require.Contains(s, s.call("", "GET", "/", "").body, requestPath)
			require.Equal(s, http.StatusOK, s.call("", "HEAD", "/", "").status)
		}},
		{"metrics count verbs by outcome, and tell the bus's figures", func(s *scene) {
			s.work()
			s.engage(dev, task)
			s.call(dev, "POST", requestPath, "")
			s.call(doc, "POST", requestPath, "")
			s.call(dev, "GET", "/api/v1/sandbox", "")
			body := s.call("", "GET", "/metrics", "").body
			for _, line := range []string{
				`sandboxd_requests_total{outcome="ok",verb="request_sandbox"} 1`,
				`sandboxd_requests_total{outcome="refused",verb="request_sandbox"} 1`,
				`sandboxd_request_seconds_count{outcome="ok",verb="request_sandbox"} 1`,
				`sandboxd_live_sandboxes 1`,
				`sandboxd_bus_up 1`,
				`sandboxd_stream_pending `,
				`sandboxd_stream_lag_seconds `,
				`sandboxd_http_call_seconds_count{call="own_sandbox",method="GET",status="200"} 1`,
			} {
				require.Contains(s, body, line)
			}
			require.NotContains(s, body, s.worker.password)
			require.NotContains(s, body, dev)
			s.call(dev, "POST", "/api/v1/do/i_am_done", "")
			require.Contains(s, s.call("", "GET", "/metrics", "").body, `sandboxd_requests_total{outcome="ok",verb="i_am_done"} 1`)
		}},
		{"the description is served as it stands", func(s *scene) {
			a := s.call("", "GET", "/openapi.json", "")
			require.Equal(s, "application/json", a.header.Get("Content-Type"))
			require.True(s, json.Valid([]byte(a.body)))
		}},
	}
}
