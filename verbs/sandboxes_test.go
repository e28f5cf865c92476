package verbs_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/state"
)

func sandboxTests() []test {
	return []test{
		{"one's own, and no other's", func(s *scene) {
			s.work()
			s.refused(s.call(dev, "GET", "/api/v1/sandbox", ""), http.StatusNotFound, client.CodeNotFound)
			s.engage(dev, task)
			s.call(dev, "POST", requestPath, `{"extensions":{"redis":["json"]}}`)
			box, err := s.as(dev).Sandbox(s.Context())
			require.NoError(s, err)
			require.Equal(s, dev, box.Agent)
			require.Equal(s, task, box.TaskID)
			require.Equal(s, proj, box.Project)
			require.Len(s, box.Engines, 3)
			require.Equal(s, s.worker.password, box.Engines["postgres"].Env["ROBOCO_TEST_DB_PASSWORD"])
			require.Equal(s, []string{"json"}, box.Engines["redis"].AvailableModules)
			require.WithinDuration(s, time.Now().Add(time.Hour), box.ExpiresAt, time.Minute)
			for _, slug := range []string{other, qa, doc, choreo, ops} {
				a := s.call(slug, "GET", "/api/v1/sandbox", "")
				s.refused(a, http.StatusNotFound, client.CodeNotFound)
				require.NotContains(s, a.body, s.worker.password)
			}
		}},
		{"reading it slides its time", func(s *scene) {
			s.work()
			s.engage(dev, task)
			s.call(dev, "POST", requestPath, "")
			first, err := s.as(dev).Sandbox(s.Context())
			require.NoError(s, err)
			s.eventually("later than before", func() bool {
				box, err := s.as(dev).Sandbox(s.Context())
				return err == nil && box.ExpiresAt.After(first.ExpiresAt)
			})
		}},
		{"operators list what lives, without credentials, and remove it", func(s *scene) {
			s.work()
			for _, slug := range []string{other, dev} {
				s.engage(slug, task)
				s.call(slug, "POST", requestPath, "")
			}
			c := s.as(ops)
			all, err := c.Sandboxes(s.Context())
			require.NoError(s, err)
			require.Len(s, all, 2)
			require.Equal(s, dev, all[0].Agent)
			require.Equal(s, "lease", all[0].Owner)
			require.Len(s, all[0].Engines, 3)
			pg := all[0].Engines[0]
			require.Equal(s, "postgres", pg.Engine)
			require.Equal(s, "roboco-sandbox-pg-"+dev, pg.Container)
			require.EqualValues(s, 512<<20, pg.MemoryBytes)
			require.WithinDuration(s, time.Now(), pg.CreatedAt, time.Minute)
			require.NotContains(s, s.call(ops, "GET", "/api/v1/sandboxes", "").body, s.worker.password)

			require.NoError(s, c.RemoveSandbox(s.Context(), dev))
			s.refused(s.call(dev, "GET", "/api/v1/sandbox", ""), http.StatusNotFound, client.CodeNotFound)
			require.Equal(s, http.StatusOK, s.call(other, "GET", "/api/v1/sandbox", "").status)
			require.NoError(s, c.RemoveSandbox(s.Context(), dev), "again is no error")
			require.Len(s, s.call(dev, "POST", requestPath, "").env.Evidence, 3, "the engagement stays")
			require.Equal(s, 2, s.worker.provisions(dev))
		}},
		{"an agent's sandbox can be removed when Redis has forgotten the agent", func(s *scene) {
			s.forget()
			require.NoError(s, s.as(ops).RemoveSandbox(s.Context(), dev))
			a, err := s.bus.Agent(s.Context(), dev)
			require.NoError(s, err)
			require.NotEmpty(s, a.Ended, "what was made before has ended")
		}},
		{"removing what nobody knows is 404, a bad slug 422", func(s *scene) {
			s.refused(s.call(ops, "DELETE", "/api/v1/sandboxes/nobody", ""), http.StatusNotFound, client.CodeNotFound)
			s.refused(s.call(ops, "DELETE", "/api/v1/sandboxes/Bad_Slug", ""), http.StatusUnprocessableEntity, client.CodeInvalidInput)
			g, err := s.bus.Gauges(s.Context())
			require.NoError(s, err)
			require.Zero(s, g.StreamLength)
		}},
	}
}

func logTests() []test {
	return []test{
		{"agents read their own, operators any agent's", func(s *scene) {
			s.work()
			logs, err := s.as(dev).Logs(s.Context(), client.LogsFilter{})
			require.NoError(s, err)
			require.Equal(s, dev, logs.Agent)
			require.Len(s, logs.Logs, 3)
			require.Contains(s, logs.Logs["redis"], "100 lines of redis of "+dev)
			logs, err = s.as(ops).Logs(s.Context(), client.LogsFilter{Agent: other, Engine: "mongo", Lines: 7})
			require.NoError(s, err)
			require.Equal(s, map[string]string{"mongo": "7 lines of mongo of " + other}, logs.Logs)
			for _, slug := range []string{dev, qa, choreo} {
				s.refused(s.call(slug, "GET", "/api/v1/sandboxes/"+other+"/logs", ""), http.StatusForbidden, client.CodeForbidden)
			}
			_, err = s.bus.Sandbox(s.Context(), dev, false)
			require.Error(s, err, "it makes nothing")
		}},
		{"no worker answers: a retryable 503", func(s *scene) {
			s = s.hasty()
			a := s.call(dev, "GET", "/api/v1/sandbox/logs", "")
			s.refused(a, http.StatusServiceUnavailable, client.CodeUnavailable)
			require.True(s, a.env.Retryable)
			require.Positive(s, a.env.RetryAfterMS)
		}},
		{"bad queries are 422", func(s *scene) {
			for query, names := range map[string]string{
				"engine=mysql": "postgres, redis, mongo", "lines=0": "lines", "lines=1001": "lines", "lines=x": "lines", "tail=5": "tail",
			} {
				a := s.call(dev, "GET", "/api/v1/sandbox/logs?"+query, "")
				s.refused(a, http.StatusUnprocessableEntity, client.CodeInvalidInput)
				require.Contains(s, a.env.Message, names, query)
			}
			s.refused(s.call(ops, "GET", "/api/v1/sandboxes/nobody/logs", ""), http.StatusNotFound, client.CodeNotFound)
			s.refused(s.call(ops, "GET", "/api/v1/sandboxes/Bad_Slug/logs", ""), http.StatusUnprocessableEntity, client.CodeInvalidInput)
		}},
	}
}

func historyTests() []test {
	const path = "/api/v1/requests"
	return []test{
		{"newest first, filtered, paged", func(s *scene) {
			var rows []state.Request
			for i, x := range []struct {
				agent, outcome string
				guard          int
			}{{dev, "ok", -1}, {dev, "refused", 3}, {other, "ok", -1}} {
				rows = append(rows, state.Request{
					ID: "0190a8b4-0000-7000-8000-00000000000" + string(rune('1'+i)), Agent: x.agent, Role: "developer", Task: task, Project: proj,
					Outcome: x.outcome, Guard: x.guard, AskedAt: time.Now(), DoneAt: time.Now(), Phases: map[string]int64{"total": 12},
					Containers: []state.RequestContainer{{ID: "c1", Engine: "redis", Outcome: "created"}},
				})
			}
			require.NoError(s, s.store.RecordRequests(s.Context(), rows))
			c := s.as(ops)
			page, err := c.Requests(s.Context(), client.HistoryFilter{Limit: 2})
			require.NoError(s, err)
			require.Len(s, page.Requests, 2)
			require.Equal(s, rows[2].ID, page.Requests[0].ID)
			require.Nil(s, page.Requests[0].Guard)
			require.Equal(s, 3, *page.Requests[1].Guard)
			require.EqualValues(s, 12, page.Requests[0].PhasesMS["total"])
			require.Equal(s, "c1", page.Requests[0].Containers[0].ID)
			page, err = c.Requests(s.Context(), client.HistoryFilter{Limit: 2, Before: page.NextBefore})
			require.NoError(s, err)
			require.Len(s, page.Requests, 1)
			require.Empty(s, page.NextBefore)
			page, err = c.Requests(s.Context(), client.HistoryFilter{Agent: dev, Outcome: "ok", Project: proj, TaskID: task})
			require.NoError(s, err)
			require.Len(s, page.Requests, 1)
		}},
		{"bad queries are 422, a store that is down 503", func(s *scene) {
			for _, query := range []string{"limit=0", "limit=501", "limit=x", "agnet=be-dev-1", "outcome=foo", "before=foo"} {
				s.refused(s.call(ops, "GET", path+"?"+query, ""), http.StatusUnprocessableEntity, client.CodeInvalidInput)
			}
			s.store.down.Store(true)
			s.refused(s.call(operator, "GET", path, ""), http.StatusServiceUnavailable, client.CodeUnavailable)
		}},
	}
}

func flagTests() []test {
	const path = "/api/v1/flags/sandbox_db_enabled"
	return []test{
		{"the run-time value wins, null leaves it to the environment, and Redis mirrors it", func(s *scene) {
			c := s.as(ops)
			f, err := c.Flag(s.Context())
			require.NoError(s, err)
			require.Nil(s, f.Value)
			require.True(s, f.Effective, "the environment's")
			yes, no := true, false
			for _, x := range []struct {
				value     *bool
				mirror    string
				effective bool
			}{{&no, "0", false}, {&yes, "1", true}, {nil, "-", true}} {
				f, err = c.SetFlag(s.Context(), x.value)
				require.NoError(s, err)
				require.Equal(s, x.value, f.Value)
				require.Equal(s, x.effective, f.Effective)
				v, err := s.bus.MasterSwitch(s.Context())
				require.NoError(s, err)
				require.Equal(s, x.mirror, string(v))
			}
		}},
		{"anything but true, false and null is 422", func(s *scene) {
			for _, body := range []string{``, `{}`, `{"value":"on"}`, `{"value":1}`, `{"enabled":true}`, `true`} {
				s.refused(s.call(ops, "PUT", path, body), http.StatusUnprocessableEntity, client.CodeInvalidInput)
			}
			s.refused(s.call(ops, "GET", "/api/v1/flags/other", ""), http.StatusNotFound, client.CodeNotFound)
		}},
		{"the store is down: 503, and the mirror is left", func(s *scene) {
			s.store.down.Store(true)
			s.refused(s.call(operator, "GET", path, ""), http.StatusServiceUnavailable, client.CodeUnavailable)
			s.refused(s.call(operator, "PUT", path, `{"value":false}`), http.StatusServiceUnavailable, client.CodeUnavailable)
			v, err := s.bus.MasterSwitch(s.Context())
			require.NoError(s, err)
			require.Empty(s, v)
		}},
	}
}

func spawnTests() []test {
	const path = "/api/v1/projects/shop/spawn"
	nothing := `{"services":[],"env":{},"briefing":null}`
	opted := func(s *scene, services ...string) {
		s.Helper()
		_, err := s.as(ops).PutProject(s.Context(), client.Project{Slug: proj, Services: services})
		require.NoError(s, err)
		_, err = s.as(ops).SetFlag(s.Context(), nil) // a worker would have mirrored the switch
		require.NoError(s, err)
	}
	return []test{
		{"opted in: services, marker and briefing, no credentials, nothing provisioned", func(s *scene) {
			opted(s, "redis", "postgres")
			for _, slug := range []string{choreo, ops, operator} {
				a := s.call(slug, "GET", path, "")
				require.Equal(s, http.StatusOK, a.status)
				var sp client.Spawn
				require.NoError(s, json.Unmarshal([]byte(a.body), &sp))
				require.Equal(s, []string{"postgres", "redis"}, sp.Services)
				require.Equal(s, map[string]string{"ROBOCO_SANDBOX_SERVICES_AVAILABLE": "postgres,redis"}, sp.Env)
				require.Contains(s, *sp.Briefing, "request_sandbox()")
				require.NotContains(s, *sp.Briefing, "\n", "one line")
			}
			g, err := s.bus.Gauges(s.Context())
			require.NoError(s, err)
			require.Zero(s, g.StreamLength)
		}},
		{"switch off: nothing, without any look-up", func(s *scene) {
			opted(s, "redis")
			require.Equal(s, http.StatusOK, s.call(choreo, "GET", path, "").status)
			no := false
			_, err := s.as(ops).SetFlag(s.Context(), &no)
			require.NoError(s, err)
			before := s.store.asked.Load()
			a := s.call(choreo, "GET", path, "")
			require.Equal(s, http.StatusOK, a.status)
			require.JSONEq(s, nothing, a.body)
			require.Equal(s, before, s.store.asked.Load())
		}},
		{"not opted in, whether null or []: nothing", func(s *scene) {
			opted(s)
			require.JSONEq(s, nothing, s.call(choreo, "GET", path, "").body)
			_, err := s.as(ops).PatchProject(s.Context(), proj, client.ProjectPatch{SetServices: true, Services: []string{}})
			require.NoError(s, err)
			a := s.call(choreo, "GET", path, "")
			require.Equal(s, http.StatusOK, a.status)
			require.JSONEq(s, nothing, a.body)
		}},
		{"an unknown project: nothing", func(s *scene) {
			for _, slug := range []string{"nosuch", "Bad_Slug", strings.Repeat("x", 99)} {
				a := s.call(choreo, "GET", "/api/v1/projects/"+slug+"/spawn", "")
				require.Equal(s, http.StatusOK, a.status)
				require.JSONEq(s, nothing, a.body)
			}
		}},
		{"the database is down: nothing, and the agent starts", func(s *scene) {
			opted(s, "redis")
			require.NotEqual(s, nothing, s.call(choreo, "GET", path, "").body)
			s.store.down.Store(true)
			a := s.call(choreo, "GET", path, "")
			require.Equal(s, http.StatusOK, a.status)
			require.JSONEq(s, nothing, a.body)
		}},
		{"a switch that nobody mirrored is read from the store and written back", func(s *scene) {
			no := false
			_, err := s.store.SetFlag(s.Context(), "sandbox_db_enabled", &no)
			require.NoError(s, err)
			_, err = s.as(ops).PutProject(s.Context(), client.Project{Slug: proj, Services: []string{"redis"}})
			require.NoError(s, err)
			require.JSONEq(s, nothing, s.call(choreo, "GET", path, "").body)
			v, err := s.bus.MasterSwitch(s.Context())
			require.NoError(s, err)
			require.Equal(s, "0", string(v))
		}},
	}
}
