package main

import (
	"bytes"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/engines"
)

// What is used wrongly is said in our words, with the command's own help, before anybody is asked.
func TestUsageIsToldInPlainWords(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil)
	for _, c := range []struct {
		args []string
		says string
		help string
	}{
		{[]string{"switch", "maybe"}, `the switch is on, off, unset, not "maybe"`, "sandbox switch"},
		{[]string{"logs", "-n", "abc"}, `--lines takes a number, not "abc"`, "sandbox logs"},
		{[]string{"logs", "-n", "-3"}, "--lines is a number from 1 to 1000, not -3", "sandbox logs"},
		{[]string{"logs", "-n", "0"}, "--lines is a number from 1 to 1000, not 0", "sandbox logs"},
		{[]string{"status", "foo"}, `there is no use for "foo" here`, "sandbox status"},
		{[]string{"projects", "set", "p", "--opt-out", "-s", "redis"}, "--opt-out and --services cannot be given together", "sandbox projects set"},
		{[]string{"projects", "shwo"}, `sandbox projects has no command "shwo"; the nearest is show`, "sandbox projects"},
		{[]string{"projects", "show"}, "missing: PROJECT", "sandbox projects show"},
		{[]string{"reqeust"}, `sandbox has no command "reqeust"; the nearest is request`, "sandbox"},
		{[]string{"work", "start", "a"}, "missing: --project, --task", "sandbox work start"},
		{[]string{"request", "--foo"}, "there is no flag --foo", "sandbox request"},
		{[]string{"request", "-x"}, "-x needs a value", "sandbox request"},
		{[]string{"done", "maybe"}, `VERB is i_am_done, unclaim,`, "sandbox done"},
		{[]string{"requests", "--limit", "-1"}, "--limit is a number from 1 to 500", "sandbox requests"},
		{[]string{"requests", "--limit", "0"}, "--limit is a number from 1 to 500", "sandbox requests"},
		{[]string{"requests", "--outcome", "foo"}, "--outcome is ok,", "sandbox requests"},
		{[]string{"requests", "--before", "foo"}, "--before is a request's ID", "sandbox requests"},
	} {
		code, out, errs := g.run(t, c.args...)
		require.Equal(t, exitUsage, code, c.args)
		require.Empty(t, out, c.args)
		require.Contains(t, errs, "sandbox: "+c.says, c.args)
		require.Contains(t, errs, "try '"+c.help+" --help'", c.args)
	}
	require.Empty(t, g.asked)
}

func TestABadTokenIsNamedBeforeAnybodyIsAsked(t *testing.T) {
	t.Parallel()
	g := newGateway(t, map[string]any{"GET /readyz": client.Health{Ready: true}})
	for _, token := range []string{"", "  ", "a b", "hunter2\n", "höhle"} {
		var o, e bytes.Buffer
		a := &app{out: &o, err: &e, url: g.URL, token: token}
		require.Equal(t, exitUsage, a.run(t.Context(), []string{"status"}), "%q", token)
		require.Contains(t, e.String(), "ROBOCO_SANDBOX_TOKEN")
		require.NotContains(t, e.String(), "hunter2")
		require.Equal(t, exitOK, a.run(t.Context(), []string{"health"}), "it needs none")
	}
}

func TestRemovalsAreToldOneByOne(t *testing.T) {
	t.Parallel()
	g := newGateway(t, map[string]any{
		"DELETE /api/v1/sandboxes/a":    nil,
		"DELETE /api/v1/sandboxes/nope": refuse(http.StatusNotFound, "a sandbox of nope does not exist", "look"),
		"DELETE /api/v1/sandboxes/b":    nil,
	})
	code, out, _ := g.run(t, "rm", "a", "nope", "b")
	require.Equal(t, exitRefused, code)
	require.Equal(t, "asked for removal: a\nasked for removal: b\nrefused: nope: a sandbox of nope does not exist (look)\n", out)
	code, out, _ = g.run(t, "rm", "a", "nope", "--json")
	require.Equal(t, exitRefused, code)
	require.JSONEq(t, `{"asked": ["a"], "refused": {"nope": "a sandbox of nope does not exist (look)"}}`, out)
}

func TestAGatewayThatIsNotReadyHasAnswered(t *testing.T) {
	t.Parallel()
	g := newGateway(t, map[string]any{"GET /readyz": client.Health{Checks: map[string]string{"redis": "does not answer"}}})
	code, out, errs := g.run(t, "health")
	require.Equal(t, exitRefused, code)
	require.Empty(t, errs)
	require.Contains(t, out, "does not answer")
}

func TestWhatIsNotThereIsSaid(t *testing.T) {
	t.Parallel()
	g := newGateway(t, map[string]any{
		"GET /api/v1/sandboxes/a/logs":    client.Logs{Agent: "a"},
		"GET /api/v1/projects/nope/spawn": client.Spawn{},
		"PUT /api/v1/projects/p":          client.Project{Slug: "p", Services: []string{"redis"}, Extensions: map[string][]string{"postgres": {"vector"}}},
		"POST /api/v1/events":             client.Publication{Warning: "project \"nope\" is not known"},
	})
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"logs", "a"}, "a has no container"},
		{[]string{"projects", "spawn", "nope"}, "offered nothing"},
		{[]string{"projects", "put", "p", "-s", "redis, mongo"}, "the extensions of postgres have no effect"},
		{[]string{"work", "start", "a", "--task", "T", "--project", "nope"}, "is not known"},
	} {
		code, _, errs := g.run(t, c.args...)
		require.Equal(t, exitOK, code, errs)
		require.Contains(t, errs, c.says)
		if asked := <-g.asked; c.args[1] == "put" {
			require.Contains(t, asked, `["redis","mongo"]`, "spaces in a list are nobody's name")
		}
	}
}

func TestEnginesHaveTheRegistrysOrder(t *testing.T) {
	t.Parallel()
	all := map[string]bool{"zz": true}
	for _, name := range engines.Builtin().Names() {
		all[name] = true
	}
	require.Equal(t, append(engines.Builtin().Names(), "zz"), inOrder(all))
}

func TestVersion(t *testing.T) {
	t.Parallel()
	code, out, _ := newGateway(t, nil).run(t, "--version")
	require.Equal(t, exitOK, code)
	require.Contains(t, out, "sandbox version ")
}
