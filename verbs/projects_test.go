package verbs_test

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/state"
)

func engagement(agent, taskID string) state.Engagement {
	return state.Engagement{Agent: agent, Task: taskID, Project: proj}
}

func outgoing(id string, event json.RawMessage) state.Outgoing {
	return state.Outgoing{EventID: id, Event: event}
}

func projectTests() []test {
	const path = "/api/v1/projects/shop"
	return []test{
		{"made, read, listed, changed, removed", func(s *scene) {
			c := s.as(ops)
			a := s.call(ops, "PUT", path, `{"name":"Shop","sandbox_services":["mongo","postgres","mongo"],"sandbox_extensions":{"postgres":["vector","citext"],"redis":[]}}`)
			require.Equal(s, http.StatusCreated, a.status, a.body)
			p, err := c.Project(s.Context(), proj)
			require.NoError(s, err)
			require.Equal(s, "Shop", p.Name)
			require.Equal(s, []string{"postgres", "mongo"}, p.Services, "in registry order, once each")
			require.Equal(s, map[string][]string{"postgres": {"citext", "vector"}}, p.Extensions)
			all, err := c.Projects(s.Context())
			require.NoError(s, err)
			require.Len(s, all, 1)
			// PUT replaces the whole; what is left out is null.
			s.refused(s.call(ops, "PUT", path, ""), http.StatusUnprocessableEntity, client.CodeInvalidInput)
			require.Equal(s, http.StatusOK, s.call(ops, "PUT", path, `{}`).status)
			p, err = c.Project(s.Context(), proj)
			require.NoError(s, err)
			require.Equal(s, "shop", p.Name)
			require.Nil(s, p.Services)
			require.Nil(s, p.Extensions)
			require.NoError(s, c.DeleteProject(s.Context(), proj))
			_, err = c.Project(s.Context(), proj)
			require.True(s, client.IsStatus(err, http.StatusNotFound), err)
			s.refused(s.call(ops, "DELETE", path, ""), http.StatusNotFound, client.CodeNotFound)
			s.refused(s.call(ops, "PATCH", path, "{}"), http.StatusNotFound, client.CodeNotFound)
		}},
		{"the workers hear of every write, and of no refused one", func(s *scene) {
			ctx, stop := context.WithCancel(s.Context())
			heard := make(chan string, 10)
			s.ran.Go(func() { _ = s.bus.ProjectChanges(ctx, func(slug string) { heard <- slug }) })
			s.Cleanup(stop)
			require.Empty(s, receive(s, heard), "it listens")
			s.refused(s.call(ops, "PUT", path, `{"sandbox_services":["oracle"]}`), http.StatusUnprocessableEntity, client.CodeInvalidInput)
			s.refused(s.call(ops, "PATCH", path, `{}`), http.StatusNotFound, client.CodeNotFound)
			for _, write := range [][]string{{"PUT", `{"sandbox_services":["redis"]}`}, {"PATCH", `{"name":"Shop"}`}, {"DELETE", ""}} {
				s.call(ops, write[0], path, write[1])
				require.Equal(s, proj, receive(s, heard), write[0])
			}
			require.Empty(s, heard)
		}},
		{"PATCH tells null from absent", func(s *scene) {
			c := s.as(ops)
			_, err := c.PutProject(s.Context(), client.Project{
				Slug: proj, Name: "Shop", Services: []string{"redis"}, Extensions: map[string][]string{"redis": {"json"}},
			})
			require.NoError(s, err)
			name := "Store"
			p, err := c.PatchProject(s.Context(), proj, client.ProjectPatch{Name: &name})
			require.NoError(s, err)
			require.Equal(s, "Store", p.Name)
			require.Equal(s, []string{"redis"}, p.Services)
			p, err = c.PatchProject(s.Context(), proj, client.ProjectPatch{SetServices: true})
			require.NoError(s, err)
			require.Nil(s, p.Services)
			require.Equal(s, map[string][]string{"redis": {"json"}}, p.Extensions)
			p, err = c.PatchProject(s.Context(), proj, client.ProjectPatch{SetServices: true, Services: []string{}, SetExtensions: true})
			require.NoError(s, err)
			require.Equal(s, []string{}, p.Services, "[] is kept as []")
			require.Nil(s, p.Extensions)
		}},
		{"a rejected write is 422 with the allowed set, and nothing is stored", func(s *scene) {
			require.Equal(s, http.StatusCreated, s.call(ops, "PUT", path, `{"sandbox_services":["redis"]}`).status)
			for _, method := range []string{"PUT", "PATCH"} {
				for body, names := range map[string][]string{
					`{"sandbox_services":["mysql"]}`:                  {"mysql", "mongo", "postgres", "redis"},
					`{"sandbox_extensions":{"postgres":["plperlu"]}}`: {"plperlu", "citext", "pg_trgm", "postgis", "uuid-ossp", "vector"},
					`{"sandbox_extensions":{"redis":["vector"]}}`:     {"vector", "bloom", "json", "search"},
					`{"sandbox_extensions":{"mongo":["x"]}}`:          {"x"},
					`{"sandbox_extensions":{"mysql":["x"]}}`:          {"mysql", "mongo", "postgres", "redis"},
					`{"sandbox_services":"redis"}`:                    {"sandbox_services", "list of strings", "a string"},
					`{"sandbox_services":[1]}`:                        {"sandbox_services[0]", "a number"},
					`{"sandbox_extensions":["vector"]}`:               {"sandbox_extensions", "object of lists"},
					`{"sandbox_extensions":{"postgres":"vector"}}`:    {"sandbox_extensions.postgres", "list of strings"},
					`{"sandbox_extensions":{"postgres":null}}`:        {"sandbox_extensions.postgres", "null"},
					`{"name":7}`:             {"name", "a number"},
					`{"name":null}`:          {"name", "null"},
					`{"slug":"other"}`:       {"slug"},
					`{"services":["redis"]}`: {"services", "sandbox_services"},
					`[]`:                     {"JSON object"},
					`null`:                   {"JSON object"},
					`{`:                      {"JSON"},
				} {
					a := s.call(ops, method, path, body)
					s.refused(a, http.StatusUnprocessableEntity, client.CodeInvalidInput)
					for _, name := range names {
						require.Contains(s, a.env.Message+" "+a.env.Remediate, name, body)
					}
				}
			}
			p, err := s.as(ops).Project(s.Context(), proj)
			require.NoError(s, err)
			require.Equal(s, []string{"redis"}, p.Services)
			require.Nil(s, p.Extensions)
			a := s.call(ops, "PUT", "/api/v1/projects/Bad_Slug", "{}")
			s.refused(a, http.StatusUnprocessableEntity, client.CodeInvalidInput)
			require.Contains(s, a.env.Message, "slug")
		}},
		{"the store is down: 503", func(s *scene) {
			s.store.down.Store(true)
			for method, body := range map[string]string{"GET": "", "PUT": "{}", "PATCH": "{}", "DELETE": ""} {
				s.refused(s.call(operator, method, path, body), http.StatusServiceUnavailable, client.CodeUnavailable)
			}
			s.refused(s.call(operator, "GET", "/api/v1/projects", ""), http.StatusServiceUnavailable, client.CodeUnavailable)
		}},
	}
}

func agentTests() []test {
	const path = "/api/v1/agents"
	return []test{
		{"made with a token that is shown once, listed without it", func(s *scene) {
			c := s.as(ops)
			made, err := c.CreateAgent(s.Context(), "fe-dev-1", "developer")
			require.NoError(s, err)
			require.Equal(s, "fe-dev-1", made.Slug)
			require.Equal(s, "developer", made.Role)
			require.Regexp(s, `^[0-9a-f]{64}$`, made.Token)
			require.Equal(s, http.StatusOK, s.call("", "GET", "/api/v1/verbs", "", "Authorization: Bearer "+made.Token).status)
			list := s.call(ops, "GET", path, "")
			require.Contains(s, list.body, "fe-dev-1")
			require.NotContains(s, list.body, made.Token)
			all, err := c.Agents(s.Context())
			require.NoError(s, err)
			require.Len(s, all, 7)
			require.NoError(s, c.RevokeAgent(s.Context(), "fe-dev-1"))
			_, err = c.CreateAgent(s.Context(), "fe-dev-1", "qa")
			require.True(s, client.IsStatus(err, http.StatusConflict), "a revoked name stays taken: %v", err)
			again, err := c.NewToken(s.Context(), "fe-dev-1")
			require.NoError(s, err)
			require.Equal(s, "developer", again.Role)
			require.NotEqual(s, made.Token, again.Token)
		}},
		{"taken is 409, unknown 404, malformed 422", func(s *scene) {
			s.refused(s.call(ops, "POST", path, `{"slug":"be-dev-1","role":"qa"}`), http.StatusConflict, client.CodeTaken)
			s.refused(s.call(ops, "POST", path+"/nobody/token", ""), http.StatusNotFound, client.CodeNotFound)
			s.refused(s.call(ops, "DELETE", path+"/nobody", ""), http.StatusNotFound, client.CodeNotFound)
			for body, names := range map[string]string{
				``:                                     "slug",
				`{"slug":"Bad Slug","role":"qa"}`:      "Bad Slug",
				`{"slug":"-x","role":"qa"}`:            "slug",
				`{"slug":"x","role":"boss"}`:           "choreographer, developer, documenter, operator, qa",
				`{"slug":"x"}`:                         "role",
				`{"slug":["x"],"role":"qa"}`:           "slug",
				`{"slug":"x","role":"qa","token":"t"}`: "token",
				`{"slug":"operator","role":"qa"}`:      "operator",
			} {
				a := s.call(ops, "POST", path, body)
				s.refused(a, http.StatusUnprocessableEntity, client.CodeInvalidInput)
				require.Contains(s, a.env.Message+" "+a.env.Remediate, names, body)
			}
		}},
		{"the store is down: 503", func(s *scene) {
			s.store.down.Store(true)
			s.refused(s.call(operator, "GET", path, ""), http.StatusServiceUnavailable, client.CodeUnavailable)
			s.refused(s.call(operator, "POST", path, `{"slug":"x","role":"qa"}`), http.StatusServiceUnavailable, client.CodeUnavailable)
			s.refused(s.call(operator, "POST", path+"/be-dev-1/token", ""), http.StatusServiceUnavailable, client.CodeUnavailable)
			s.refused(s.call(operator, "DELETE", path+"/be-dev-1", ""), http.StatusServiceUnavailable, client.CodeUnavailable)
		}},
	}
}
