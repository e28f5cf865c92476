package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/client"
)

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	letter := client.DeadLetter{ID: "7-1", Entry: "5-0", Cause: "panicked", Reason: "its handler panicked 5 times", Type: "work.ended", Agent: "be-dev-1"}
	shown := letter
	shown.Fields = map[string]string{"type": "work.ended", "data": "{}"}
	g := newGateway(t, map[string]any{
		"GET /api/v1/dead":            client.DeadLetterPage{Letters: []client.DeadLetter{letter}, NextBefore: "7-1"},
		"GET /api/v1/dead/7-1":        shown,
		"POST /api/v1/dead/7-1/retry": client.RetriedLetter{ID: "7-1", StreamID: "9-0"},
		"POST /api/v1/dead/7-2/retry": refuse(http.StatusConflict, "not put back: the request has its answer already", "drop it"),
		"DELETE /api/v1/dead/7-1":     map[string]string{},
		"DELETE /api/v1/dead/7-2":     map[string]string{},
	})
	for _, c := range []struct {
		args  string
		asked []string
		says  []string
	}{
		{"dead list --limit 1 --before 8-1", []string{"GET /api/v1/dead?before=8-1&limit=1"}, []string{"7-1", "work.ended", "be-dev-1", "panicked 5 times", "--before 7-1"}},
		{"dead show 7-1", []string{"GET /api/v1/dead/7-1"}, []string{"panicked 5 times", `"data"`, `"{}"`}},
		{"dead retry 7-1", []string{"POST /api/v1/dead/7-1/retry"}, []string{"9-0"}},
		{"dead drop 7-1 7-2", []string{"DELETE /api/v1/dead/7-1", "DELETE /api/v1/dead/7-2"}, []string{"dropped: 7-2"}},
		{"dead list --json", []string{"GET /api/v1/dead"}, []string{`"next_before": "7-1"`}},
		{"dead drop --json 7-1", []string{"DELETE /api/v1/dead/7-1"}, []string{`"dropped"`}},
	} {
		code, out, errs := g.run(t, strings.Fields(c.args)...)
		require.Equal(t, exitOK, code, "%s: %s", c.args, errs)
		for _, asked := range c.asked {
			require.Equal(t, asked, <-g.asked)
		}
		for _, words := range c.says {
			require.Contains(t, out, words, c.args)
		}
	}
	code, _, errs := g.run(t, "dead", "retry", "7-2")
	require.Equal(t, exitRefused, code)
	require.Contains(t, errs, "has its answer already")
	for _, wrong := range [][]string{{"dead", "show"}, {"dead", "drop"}, {"dead", "retry", "1", "2"}, {"dead", "--nonsense"}} {
		code, _, _ := g.run(t, wrong...)
		require.Equal(t, exitUsage, code, "%v", wrong)
	}
	for _, name := range []string{"list", "show", "retry", "drop"} {
		code, out, _ := g.run(t, "dead", name, "--help")
		require.Equal(t, exitOK, code)
		require.Contains(t, out, "Usage:")
	}
}
