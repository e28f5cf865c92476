package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/client"
)

// gateway answers as a gateway would, and keeps what was asked.
type gateway struct {
	*httptest.Server
	asked chan string // "METHOD path body"
}

// newGateway answers by "METHOD path"; a missing one is a 404 without an envelope.
func newGateway(t *testing.T, answers map[string]any) *gateway {
	t.Helper()
	g := &gateway{asked: make(chan string, 16)}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		g.asked <- strings.TrimSpace(r.Method + " " + r.URL.RequestURI() + " " + string(body))
		answer, ok := answers[r.Method+" "+r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		if text, isText := answer.(string); isText { // server-sent events
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, text)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if e, isRefusal := answer.(refusal); isRefusal {
			w.WriteHeader(e.status)
			answer = e.envelope
		}
		if _, isAccepted := answer.(client.Accepted); isAccepted {
			w.WriteHeader(http.StatusAccepted)
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(g.Close)
	return g
}

type refusal struct {
	status   int
	envelope client.Envelope
}

func refuse(status int, message, remediate string) refusal {
	code := client.CodeInvalidState
	return refusal{status, client.Envelope{Status: client.StatusError, Error: &code, Message: message, Remediate: remediate}}
}

// run is one call of the program.
func (g *gateway) run(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	a := &app{in: strings.NewReader(""), out: &o, err: &e, url: g.URL, token: "t"}
	code = a.run(t.Context(), args)
	return code, o.String(), e.String()
}

func evidence() map[string]client.Evidence {
	user := "sandbox"
	return map[string]client.Evidence{"postgres": {
		Host: "pg", Port: 5432, User: &user, Password: "p'w $(x)", URL: "postgres://sandbox:pw@pg:5432/sandbox", Outcome: "created",
		ExpiresAt: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC), AvailableExtensions: []string{"vector"},
		Env: map[string]string{"ROBOCO_TEST_DB_PASSWORD": "p'w $(x)", "ROBOCO_TEST_DB_HOST": "pg"},
	}}
}

func TestRequestShowsProgressAndResult(t *testing.T) {
	t.Parallel()
	result, err := json.Marshal(client.Envelope{Status: client.StatusInProgress, Evidence: evidence()})
	require.NoError(t, err)
	g := newGateway(t, map[string]any{
		"POST /api/v1/do/request_sandbox": client.Accepted{RequestID: "R"},
		"GET /api/v1/requests/R/events": "id: 1\nevent: progress\ndata: {\"stage\":\"accepted\"}\n\n" +
			"id: 1-1\nevent: progress\ndata: {\"stage\":\"queued\",\"position\":3}\n\n" +
			"id: 1-2\nevent: progress\ndata: {\"stage\":\"queued\",\"position\":1}\n\n" +
			"id: 2\nevent: progress\ndata: {\"stage\":\"probing\",\"engine\":\"postgres\"}\n\n" +
			"id: 3\nevent: result\ndata: " + string(result) + "\n\n",
	})
	code, out, errs := g.run(t, "request", "postgres", "-x", "postgres=vector,citext", "-x", "redis=json")
	require.Equal(t, exitOK, code, errs)
	require.Contains(t, out, "postgres://sandbox:pw@pg:5432/sandbox")
	require.Contains(t, out, "created")
	require.Equal(t, "accepted\nqueued, place 3 in the line\nqueued, place 1 in the line\npostgres: probing\n", errs)
	require.JSONEq(t, `{"services":["postgres"],"extensions":{"postgres":["vector","citext"],"redis":["json"]}}`,
		strings.TrimPrefix(<-g.asked, "POST /api/v1/do/request_sandbox "))

	code, out, errs = g.run(t, "request", "--json", "--quiet")
	require.Equal(t, exitOK, code)
	require.Empty(t, errs)
	var env client.Envelope
	require.NoError(t, json.Unmarshal([]byte(out), &env))
	require.Equal(t, "p'w $(x)", env.Evidence["postgres"].Password)
}

func TestRefusalSaysWhyAndExitsOne(t *testing.T) {
	t.Parallel()
	g := newGateway(t, map[string]any{
		"POST /api/v1/do/request_sandbox": refuse(http.StatusOK, "the switch is off", "set ROBOCO_SANDBOX_DB_ENABLED"),
		"GET /api/v1/projects":            refuse(http.StatusForbidden, "not for developers", "ask an operator"),
	})
	code, out, errs := g.run(t, "request")
	require.Equal(t, exitRefused, code)
	require.Empty(t, out)
	require.Contains(t, errs, "the switch is off")
	require.Contains(t, errs, "ROBOCO_SANDBOX_DB_ENABLED")

	code, out, errs = g.run(t, "projects", "--json")
	require.Equal(t, exitRefused, code)
	require.Empty(t, errs)
	require.Contains(t, out, `"remediate": "ask an operator"`)
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil)
	dead := &gateway{Server: httptest.NewServer(http.NotFoundHandler())}
	dead.Close()
	for _, args := range [][]string{
		{"nonsense"},
		{"request", "--nonsense"},
		{"rm"},
		{"switch", "maybe"},
		{"projects", "show"},
		{"projects", "set", "p"},
		{"request", "-x", "postgres"},
		{"work", "start", "a"},
		{"status", "extra"},
		{"projects", "set", "p", "--bare", "-x", "a=b"},
	} {
		code, _, errs := g.run(t, args...)
		require.Equal(t, exitUsage, code, args)
		require.Contains(t, errs, "--help", args)
	}
	for _, args := range [][]string{{"status"}, {"request"}, {"ps", "--json"}, {"health"}, {"env"}} {
		code, _, _ := dead.run(t, args...)
		require.Equal(t, exitUnreachable, code, args)
	}
	bad := &gateway{Server: &httptest.Server{URL: "not-a-url"}}
	code, _, errs := bad.run(t, "status")
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "ROBOCO_SANDBOX_URL")
	code, out, _ := g.run(t, "--help")
	require.Equal(t, exitOK, code)
	for _, name := range []string{"request", "status", "env", "done", "projects", "agents", "ps", "logs", "rm", "mcp"} {
		require.Contains(t, out, "\n  "+name+" ")
	}
}

func TestEnvIsSourcedByAShell(t *testing.T) {
	t.Parallel()
	g := newGateway(t, map[string]any{"GET /api/v1/sandbox": client.Sandbox{Agent: "a", Engines: evidence()}})
	code, out, errs := g.run(t, "env")
	require.Equal(t, exitOK, code, errs)
	shell := exec.CommandContext(t.Context(), "sh", "-c", out+`printf '%s|%s' "$ROBOCO_TEST_DB_HOST" "$ROBOCO_TEST_DB_PASSWORD"`)
	got, err := shell.Output()
	require.NoError(t, err)
	require.Equal(t, "pg|p'w $(x)", string(got))

	code, out, _ = g.run(t, "env", "--json")
	require.Equal(t, exitOK, code)
	require.JSONEq(t, `{"ROBOCO_TEST_DB_HOST":"pg","ROBOCO_TEST_DB_PASSWORD":"p'w $(x)"}`, out)
}

func TestEnvWithoutASandboxPrintsNothingToSource(t *testing.T) {
	t.Parallel()
	g := newGateway(t, map[string]any{"GET /api/v1/sandbox": refuse(http.StatusNotFound, "no sandbox", "call request_sandbox")})
	code, out, errs := g.run(t, "env")
	require.Equal(t, exitRefused, code)
	require.Empty(t, out)
	require.Contains(t, errs, "sandbox request")
}

func TestExportsRefusesWhatNoShellCanHold(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"A B", "1A", "A;rm", ""} {
		_, err := exports(map[string]string{name: "x"})
		require.Error(t, err, name)
	}
	_, err := exports(map[string]string{"A": "x\x00y"})
	require.Error(t, err)
}

func TestCommandsCallTheirRoute(t *testing.T) {
	t.Parallel()
	on := true
	g := newGateway(t, map[string]any{
		"POST /api/v1/do/i_am_done":            client.Envelope{Status: client.StatusEnded},
		"POST /api/v1/do/unclaim":              client.Envelope{Status: client.StatusEnded, Warning: "nothing has ended"},
		"GET /api/v1/projects":                 map[string]any{"projects": []client.Project{{Slug: "shop"}}},
		"PUT /api/v1/projects/shop":            client.Project{Slug: "shop", Services: []string{"redis"}},
		"PATCH /api/v1/projects/shop":          client.Project{Slug: "shop"},
		"GET /api/v1/projects/shop/spawn":      client.Spawn{Env: map[string]string{"ROBOCO_SANDBOX_SERVICES_AVAILABLE": "redis"}},
		"DELETE /api/v1/projects/shop":         nil,
		"POST /api/v1/agents":                  client.NewAgent{Slug: "a", Token: "secret-token"},
		"POST /api/v1/agents/a/token":          client.NewAgent{Slug: "a", Token: "other-token"},
		"DELETE /api/v1/agents/a":              nil,
		"GET /api/v1/sandboxes":                map[string]any{"sandboxes": []client.SandboxSummary{{Agent: "a", Owner: "lease", Engines: []client.EngineSummary{{Engine: "redis", Container: "roboco-sandbox-redis-a"}}}}},
		"DELETE /api/v1/sandboxes/a":           nil,
		"GET /api/v1/sandboxes/a/logs":         client.Logs{Logs: map[string]string{"redis": "up\tnow\n"}},
		"GET /api/v1/requests":                 client.HistoryPage{Requests: []client.HistoryRow{{Agent: "a", Outcome: "ok"}}, NextBefore: "N"},
		"GET /api/v1/flags/sandbox_db_enabled": client.Flag{Effective: true},
		"PUT /api/v1/flags/sandbox_db_enabled": client.Flag{Value: &on, Effective: true},
		"GET /api/v1/engines":                  map[string]any{"engines": []client.EngineDescription{{Name: "redis", Image: "redis:8"}}},
		"GET /api/v1/verbs":                    client.Manifest{Agent: "a", Role: "qa"},
		"POST /api/v1/events":                  client.Publication{ID: "E"},
		"GET /readyz":                          client.Health{Ready: true, Checks: map[string]string{"redis": "ok"}},
	})
	for _, c := range []struct{ args, asks, says string }{
		{"done", "POST /api/v1/do/i_am_done {}", "ended"},
		{"done unclaim --task T-1", `POST /api/v1/do/unclaim {"task_id":"T-1"}`, "nothing has ended"},
		{"projects", "GET /api/v1/projects", "not opted in"},
		{"projects put shop -s redis", `PUT /api/v1/projects/shop {"name":"","sandbox_extensions":null,"sandbox_services":["redis"]}`, "redis"},
		{"projects set shop --opt-out", `PATCH /api/v1/projects/shop {"sandbox_services":null}`, "shop"},
		{"projects set shop -x postgres=vector", `PATCH /api/v1/projects/shop {"sandbox_extensions":{"postgres":["vector"]}}`, "shop"},
		{"projects spawn shop", "GET /api/v1/projects/shop/spawn", "export ROBOCO_SANDBOX_SERVICES_AVAILABLE='redis'"},
		{"projects rm shop", "DELETE /api/v1/projects/shop", "removed"},
		{"agents add a --role qa", `POST /api/v1/agents {"role":"qa","slug":"a"}`, "secret-token"},
		{"agents token a", "POST /api/v1/agents/a/token", "other-token"},
		{"agents rm a", "DELETE /api/v1/agents/a", "revoked"},
		{"ps", "GET /api/v1/sandboxes", "roboco-sandbox-redis-a"},
		{"rm a", "DELETE /api/v1/sandboxes/a", "asked for removal: a"},
		{"logs a -e redis -n 5", "GET /api/v1/sandboxes/a/logs?engine=redis&lines=5", "up    now"},
		{"requests --agent a --limit 1", "GET /api/v1/requests?agent=a&limit=1", "--before N"},
		{"switch", "GET /api/v1/flags/sandbox_db_enabled", "unset at run time, so it is on"},
		{"switch on", `PUT /api/v1/flags/sandbox_db_enabled {"value":true}`, "on at run time"},
		{"switch unset", `PUT /api/v1/flags/sandbox_db_enabled {"value":null}`, ""},
		{"engines", "GET /api/v1/engines", "redis:8"},
		{"verbs", "GET /api/v1/verbs", "role qa"},
		{"work start a --task T --project P --id E", `POST /api/v1/events {"id":"E","type":"work.started","source":"sandbox-cli","subject":"a","data":{"project":"P","status":"in_progress","task_id":"T"}}`, "published"},
		{"work end a --task T --id E", `POST /api/v1/events {"id":"E","type":"work.ended","source":"sandbox-cli","subject":"a","data":{"task_id":"T","verb":"unclaim"}}`, "published"},
		{"health", "GET /readyz", "redis:"},
	} {
		code, out, errs := g.run(t, strings.Fields(c.args)...)
		require.Equal(t, exitOK, code, "%s: %s", c.args, errs)
		require.Equal(t, c.asks, <-g.asked, c.args)
		require.Contains(t, out, c.says, c.args)

		code, out, errs = g.run(t, append(strings.Fields(c.args), "--json")...)
		require.Equal(t, exitOK, code, "%s --json: %s", c.args, errs)
		require.True(t, json.Valid([]byte(out)), "%s --json: %s", c.args, out)
		<-g.asked
	}
}

func TestProgressIsDrawnOverOnATerminal(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	p := newProgress(&b, true, false)
	p.tell(client.Progress{Stage: "pulling", Engine: "mongo", Done: 1_000_000, Total: 2_000_000})
	p.tell(client.Progress{Stage: "ready", Engine: "mongo"})
	p.end()
	require.NotContains(t, b.String(), "\n")
	require.Contains(t, b.String(), "mongo: pulling 1.0 of 2.0 MB")
	require.True(t, strings.HasSuffix(b.String(), clearLine), "the line is taken away at the end")
}
