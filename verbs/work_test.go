package verbs_test

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/state"
)

func workTests() []test {
	return []test{
		{"each work-ending verb ends the engagement, and takes the sandbox with it", func(s *scene) {
			s.work()
			for _, verb := range []string{"i_am_done", "unclaim", "i_am_idle", "pass_review", "fail_review", "i_documented"} {
				s.engage(dev, "T-"+verb)
				require.Len(s, s.call(dev, "POST", requestPath, "").env.Evidence, 3)
				a := s.call(dev, "POST", "/api/v1/do/"+verb, "")
				require.Equal(s, http.StatusOK, a.status, a.body)
				s.complete(a.body)
				require.Nil(s, a.env.Error)
				require.Equal(s, client.StatusEnded, a.env.Status)
				require.Equal(s, "T-"+verb, *a.env.TaskID, "the task is the engagement's where none is named")
				s.refused(s.call(dev, "GET", "/api/v1/sandbox", ""), http.StatusNotFound, client.CodeNotFound)
				s.refused(s.call(dev, "POST", requestPath, ""), http.StatusOK, client.CodeInvalidState)
				e, err := s.store.Engagement(s.Context(), dev)
				require.NoError(s, err)
				require.True(s, e.Ended)
			}
			owed, err := s.store.Unpublished(s.Context(), 0, 10)
			require.NoError(s, err)
			require.Empty(s, owed, "what was published is not owed any more")
		}},
		{"without an engagement it is null, and still 200", func(s *scene) {
			for range 2 {
				a := s.call(doc, "POST", "/api/v1/do/i_documented", "{}")
				require.Equal(s, http.StatusOK, a.status, a.body)
				require.Nil(s, a.env.TaskID)
				require.Contains(s, a.env.Warning, "no work under way")
			}
			s.engage(dev, task)
			a := s.call(dev, "POST", "/api/v1/do/unclaim", "")
			require.Equal(s, task, *a.env.TaskID)
			require.Empty(s, a.env.Warning)
			require.Contains(s, s.call(dev, "POST", "/api/v1/do/unclaim", `{"task_id":"T-1"}`).env.Warning, "no work under way", "a second time")
			require.Nil(s, s.call(dev, "POST", "/api/v1/do/unclaim", "").env.TaskID, "it has ended")
		}},
		{"another task than the engagement's ends nothing", func(s *scene) {
			s.work()
			s.engage(dev, task)
			s.call(dev, "POST", requestPath, "")
			a := s.call(dev, "POST", "/api/v1/do/i_am_done", `{"task_id":"T-0"}`)
			require.Equal(s, http.StatusOK, a.status)
			require.Equal(s, "T-0", *a.env.TaskID)
			require.Contains(s, a.env.Warning, `on task "T-1", not on "T-0"`)
			require.Contains(s, *a.env.Next, "Go on")
			require.Equal(s, http.StatusOK, s.call(dev, "GET", "/api/v1/sandbox", "").status)
		}},
		{"an engagement that Redis has forgotten is the store's", func(s *scene) {
			out := encode(s, events.Event{ID: "e1", Type: events.WorkStarted, Subject: dev})
			require.NoError(s, s.store.StartWork(s.Context(), engagement(dev, "T-9"), outgoing("e1", out)))
			require.Equal(s, "T-9", *s.call(dev, "POST", "/api/v1/do/i_am_done", "").env.TaskID)
		}},
		{"it ends only the caller's own", func(s *scene) {
			s.work()
			s.engage(dev, task)
			s.engage(other, task)
			s.call(dev, "POST", requestPath, "")
			s.call(other, "POST", requestPath, "")
			require.Equal(s, http.StatusOK, s.call(other, "POST", "/api/v1/do/i_am_done", `{"task_id":"T-1"}`).status)
			require.Equal(s, http.StatusOK, s.call(dev, "GET", "/api/v1/sandbox", "").status)
			s.refused(s.call(other, "GET", "/api/v1/sandbox", ""), http.StatusNotFound, client.CodeNotFound)
		}},
		{"the store is down: 503, retryable, and nothing has ended", func(s *scene) {
			s.engage(dev, task)
			s.call(dev, "GET", "/api/v1/verbs", "")
			s.store.down.Store(true)
			a := s.call(dev, "POST", "/api/v1/do/i_am_done", "")
			s.refused(a, http.StatusServiceUnavailable, client.CodeUnavailable)
			require.True(s, a.env.Retryable)
			known, err := s.bus.Agent(s.Context(), dev)
			require.NoError(s, err)
			require.Equal(s, task, known.Task)
			s.store.down.Store(false)
			require.Equal(s, http.StatusOK, s.call(dev, "POST", "/api/v1/do/i_am_done", "").status)
		}},
		{"an unknown verb is 404 and names those there are", func(s *scene) {
			a := s.call(dev, "POST", "/api/v1/do/give_me_money", "")
			s.refused(a, http.StatusNotFound, client.CodeNotFound)
			require.Contains(s, a.env.Message, "give_me_money")
			require.Contains(s, a.env.Remediate, "i_am_done")
			require.Contains(s, a.env.Remediate, "request_sandbox")
		}},
	}
}

func eventTests() []test {
	started := func(id, subject, taskID, project string) string {
		raw, _ := json.Marshal(map[string]any{
			"specversion": "1.0", "id": id, "type": "work.started", "source": "test", "subject": subject, "time": "2026-01-02T03:04:05Z",
			"x-other": true, "data": events.Started{TaskID: taskID, Project: project, Status: "claimed", Owner: "container"},
		})
		return string(raw)
	}
	owes := func(s *scene, id, taskID string) events.Event { // stored, and not known to be published
		s.Helper()
		raw := []byte(started(id, dev, taskID, proj))
		e, err := events.Decode(raw)
		require.NoError(s, err)
		require.NoError(s, s.store.StartWork(s.Context(), state.Engagement{Agent: dev, Task: taskID, Project: proj, Status: "claimed"},
			state.Outgoing{EventID: id, Event: raw}))
		return e
	}
	const path = "/api/v1/events"
	return []test{
		{"work.started and work.ended are in the store and in Redis, once", func(s *scene) {
			var first client.Publication
			for i := range 2 {
				a := s.call(choreo, "POST", path, started("e1", dev, task, proj))
				require.Equal(s, http.StatusOK, a.status, a.body)
				var p client.Publication
				require.NoError(s, json.Unmarshal([]byte(a.body), &p))
				require.Equal(s, "e1", p.ID)
				require.Equal(s, i == 1, p.Known)
				if i == 0 {
					first = p
				}
				require.Equal(s, first.StreamID, p.StreamID)
			}
			e, err := s.store.Engagement(s.Context(), dev)
			require.NoError(s, err)
			require.Equal(s, task, e.Task)
			require.Equal(s, proj, e.Project)
			require.True(s, e.Owned)
			known, err := s.bus.Agent(s.Context(), dev)
			require.NoError(s, err)
			require.Equal(s, task, known.Task)
			require.True(s, known.Owned)
			g, err := s.bus.Gauges(s.Context())
			require.NoError(s, err)
			require.EqualValues(s, 1, g.StreamLength)

			p, err := s.as(choreo).PublishEvent(s.Context(), client.Event{
				ID: "e2", Type: "work.ended", Source: "t", Subject: dev, Data: encode(s, events.Ended{Verb: "i_am_done", TaskID: "T-0"}),
			})
			require.NoError(s, err)
			require.True(s, p.Moot, "it names another task")
			_, err = s.as(choreo).PublishEvent(s.Context(), client.Event{
				ID: "e3", Type: "work.ended", Source: "t", Subject: dev, Data: encode(s, events.Ended{Verb: "i_am_done", TaskID: task}),
			})
			require.NoError(s, err)
			e, err = s.store.Engagement(s.Context(), dev)
			require.NoError(s, err)
			require.True(s, e.Ended)
			owed, err := s.store.Unpublished(s.Context(), 0, 10)
			require.NoError(s, err)
			require.Empty(s, owed)
		}},
		{"an event that comes again changes nothing, also when Redis has forgotten it", func(s *scene) {
			for i, task := range []string{"T-1", "T-2"} {
				require.Equal(s, http.StatusOK, s.call(choreo, "POST", path, started(fmt.Sprint("e", i), dev, task, proj)).status)
			}
			s.forget()
			a := s.call(choreo, "POST", path, started("e0", dev, "T-1", proj))
			require.Equal(s, http.StatusOK, a.status, a.body)
			var p client.Publication
			require.NoError(s, json.Unmarshal([]byte(a.body), &p))
			require.True(s, p.Known)
			require.Empty(s, p.StreamID)
			e, err := s.store.Engagement(s.Context(), dev)
			require.NoError(s, err)
			require.Equal(s, "T-2", e.Task)
			g, err := s.bus.Gauges(s.Context())
			require.NoError(s, err)
			require.Zero(s, g.StreamLength, "nothing was published")
		}},
		{"what was published and could not be noted so does not come back after a flush", func(s *scene) {
			_, err := s.bus.Publish(s.Context(), owes(s, "e0", "T-1")) // and Postgres was away for the note
			require.NoError(s, err)
			require.Equal(s, http.StatusOK, s.call(choreo, "POST", path, started("e1", dev, "T-2", proj)).status)
			s.forget()
			require.Equal(s, http.StatusOK, s.call(choreo, "POST", path, started("e0", dev, "T-1", proj)).status)
			owed, err := s.store.Unpublished(s.Context(), 0, 10)
			require.NoError(s, err)
			require.Empty(s, owed, "nor does a janitor publish it")
			g, err := s.bus.Gauges(s.Context())
			require.NoError(s, err)
			require.Zero(s, g.StreamLength)
		}},
		{"what is owed from before is published first", func(s *scene) {
			owes(s, "e0", "T-1")
			end := `{"id":"e1","type":"work.ended","source":"t","subject":"be-dev-1","data":{}}`
			require.Equal(s, http.StatusOK, s.call(choreo, "POST", path, end).status)
			known, err := s.bus.Agent(s.Context(), dev)
			require.NoError(s, err)
			require.True(s, known.WorkEnded, "the end comes after the begin")
			g, err := s.bus.Gauges(s.Context())
			require.NoError(s, err)
			require.EqualValues(s, 2, g.StreamLength)
			owed, err := s.store.Unpublished(s.Context(), 0, 10)
			require.NoError(s, err)
			require.Empty(s, owed)
		}},
		{"what is probably a mistake is published with a warning", func(s *scene) {
			for _, x := range []struct{ body, warning string }{
				{started("w1", dev, task, "nope"), `project "nope" is not known`},
				{started("w2", "nobody", task, proj), `agent "nobody" is not known`},
				{started("w3", doc, task, proj), "documenter"},
				{started("w4", dev, task+" ", proj), "begins or ends with a space"},
				{`{"id":"w5","type":"work.ended","source":"t","subject":"be-qa-1","data":{"task_id":"T"}}`, "no work under way"},
				{`{"id":"w6","type":"work.ended","source":"t","subject":"be-dev-1","data":{"task_id":"T"}}`, "nothing has ended"},
			} {
				a := s.call(choreo, "POST", path, x.body)
				require.Equal(s, http.StatusOK, a.status, a.body)
				require.Contains(s, a.env.Warning, x.warning, x.body)
			}
			_, err := s.as(ops).PutProject(s.Context(), client.Project{Slug: proj})
			require.NoError(s, err)
			require.Contains(s, s.call(choreo, "POST", path, started("w7", dev, task, proj)).env.Warning, "opted into no sandbox service")
			_, err = s.as(ops).PutProject(s.Context(), client.Project{Slug: proj, Services: []string{"redis"}})
			require.NoError(s, err)
			require.Empty(s, s.call(choreo, "POST", path, started("w8", dev, task, proj)).env.Warning)
		}},
		{"agent.stopped ends the sandbox and leaves the engagement", func(s *scene) {
			s.work()
			s.engage(dev, task)
			s.call(dev, "POST", requestPath, "")
			a := s.call(choreo, "POST", path, `{"id":"s1","type":"agent.stopped","source":"t","subject":"be-dev-1","data":{"owner":"someone@else"}}`)
			require.Contains(s, a.body, `"moot":true`)
			require.Equal(s, http.StatusOK, s.call(dev, "GET", "/api/v1/sandbox", "").status)
			a = s.call(choreo, "POST", path, `{"id":"s2","type":"agent.stopped","source":"t","subject":"be-dev-1","data":{"owner":"lease","reason":"gone"}}`)
			require.Contains(s, a.body, `"moot":false`)
			s.refused(s.call(dev, "GET", "/api/v1/sandbox", ""), http.StatusNotFound, client.CodeNotFound)
			require.Len(s, s.call(dev, "POST", requestPath, "").env.Evidence, 3)
			require.Equal(s, 2, s.worker.provisions(dev))
		}},
		{"what may not be published here is 403, whatever its data", func(s *scene) {
			for _, kind := range []string{"sandbox.requested", "logs.requested"} {
				a := s.call(choreo, "POST", path, `{"type":"`+kind+`","data":"nonsense"}`)
				s.refused(a, http.StatusForbidden, client.CodeForbidden)
				require.Contains(s, a.env.Message, kind)
			}
			g, err := s.bus.Gauges(s.Context())
			require.NoError(s, err)
			require.Zero(s, g.StreamLength)
		}},
		{"what is malformed is 422, names the attribute, and stores nothing", func(s *scene) {
			for body, names := range map[string]string{
				``:              "JSON",
				`nonsense`:      "JSON",
				`[]`:            "JSON object",
				`{}`:            "type",
				`{"type":7}`:    "type",
				`{"type":"no"}`: "work.started",
				`{"type":"work.started","source":"t","subject":"be-dev-1","data":{"task_id":"T","project":"p"}}`:                             "id",
				`{"id":"e","type":"work.started","source":"t","subject":"Bad Slug","data":{"task_id":"T","project":"p"}}`:                    "subject",
				`{"id":"e","type":"work.started","source":"t","subject":"be-dev-1","data":{"project":"p"}}`:                                  "task_id",
				`{"id":"e","type":"work.started","source":"t","subject":"be-dev-1","data":{"task_id":"T"}}`:                                  "project",
				`{"id":"e","type":"work.started","source":"t","subject":"be-dev-1","data":{"task_id":"T","project":"p","owner":"nobody"}}`:   "owner",
				`{"id":"e","type":"work.started","source":"t","subject":"be-dev-1","data":{"task_id":["T"],"project":"p"}}`:                  "task_id",
				`{"id":"e","type":"work.started","source":"t","subject":"be-dev-1","time":"yesterday","data":{"task_id":"T","project":"p"}}`: "time",
				`{"id":"e","type":"work.ended","source":"t","subject":"be-dev-1","data":[]}`:                                                 "data",
			} {
				a := s.call(choreo, "POST", path, body)
				s.refused(a, http.StatusUnprocessableEntity, client.CodeInvalidInput)
				require.Contains(s, a.env.Message, names, body)
			}
			_, err := s.store.Engagement(s.Context(), dev)
			require.Error(s, err)
		}},
		{"the store is down: 503, and nothing is published", func(s *scene) {
			s.call(choreo, "GET", "/api/v1/verbs", "")
			s.store.down.Store(true)
			s.refused(s.call(choreo, "POST", path, started("e1", dev, task, proj)), http.StatusServiceUnavailable, client.CodeUnavailable)
			g, err := s.bus.Gauges(s.Context())
			require.NoError(s, err)
			require.Zero(s, g.StreamLength)
			s.store.down.Store(false)
			require.Equal(s, http.StatusOK, s.call(choreo, "POST", path, started("e1", dev, task, proj)).status)
		}},
	}
}
