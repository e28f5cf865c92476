package verbs

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/state"
)

// listEngines answers GET /api/v1/engines.
func (g *Gateway) listEngines(w http.ResponseWriter, _ *http.Request, _ *call) error {
	out := make([]client.EngineDescription, len(g.cfg.Engines))
	for i, e := range g.cfg.Engines {
		out[i] = describeEngine(e)
	}
	writeJSON(w, http.StatusOK, map[string]any{"engines": out})
	return nil
}

func describeEngine(e engines.Engine) client.EngineDescription {
	d := client.EngineDescription{
		Name: e.Name, Image: e.Bare, FeatureImage: e.Feature, Port: e.Port, ReadyWithin: int64(e.ReadyWithin / time.Second),
		Features: slices.Sorted(slices.Values(e.Features)), User: nullable(e.User), Database: nullable(e.Database),
		AuthDatabase: e.AuthDatabase, Env: []string{},
	}
	if d.Features == nil {
		d.Features = []string{}
	}
	if e.Env != nil && e.URL != nil {
		d.Env = slices.Sorted(maps.Keys(e.Env(e.Credentials("host", e.Port, "password"))))
	}
	return d
}

// listVerbs answers GET /api/v1/verbs: the manifest, and who the caller is.
func (g *Gateway) listVerbs(w http.ResponseWriter, _ *http.Request, c *call) error {
	verbs := g.cfg.Roles.describe()
	if !c.who.agent { // the configured operator has no work of its own, and no verb either
		for i := range verbs {
			verbs[i].Roles = slices.DeleteFunc(verbs[i].Roles, func(role string) bool { return role == c.who.role })
		}
	}
	writeJSON(w, http.StatusOK, client.Manifest{Agent: c.who.slug, Role: c.who.role, Verbs: verbs})
	return nil
}

// Rows of one page of the history.
const (
	defaultRows = 50
	mostRows    = 500
)

// outcomes lists what may have come of a request.
func outcomes() []string {
	return []string{"ok", "refused", "failed", "stale", "late", "exhausted"}
}

// listRequests answers GET /api/v1/requests.
func (g *Gateway) listRequests(w http.ResponseWriter, r *http.Request, _ *call) error {
	q := r.URL.Query()
	if err := onlyParams(q, "agent", "project", "task_id", "outcome", "before", "limit"); err != nil {
		return err
	}
	f := state.HistoryFilter{
		Agent: q.Get("agent"), Project: q.Get("project"), Task: q.Get("task_id"), Outcome: q.Get("outcome"),
		Before: q.Get("before"), Limit: defaultRows,
	}
	if f.Outcome != "" && !slices.Contains(outcomes(), f.Outcome) {
		return &client.InputError{Field: "outcome", Problem: "there is no outcome " + clip(f.Outcome), Allowed: outcomes()}
	}
	if f.Before != "" && uuid.Validate(f.Before) != nil {
		return &client.InputError{Field: "before", Problem: clip(f.Before) + " is not a request's ID, such as next_before of a page"}
	}
	if s := q.Get("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > mostRows {
			return &client.InputError{Field: "limit", Problem: fmt.Sprintf("it must be a number from 1 to %d", mostRows)}
		}
		f.Limit = n
	}
	rows, err := g.cfg.Store.Requests(r.Context(), f)
	if err != nil {
		return fmt.Errorf("read the history: %w", err)
	}
	page := client.HistoryPage{Requests: make([]client.HistoryRow, len(rows))}
	for i, row := range rows {
		page.Requests[i] = wireRow(row)
	}
	if len(rows) == f.Limit {
		page.NextBefore = rows[len(rows)-1].ID
	}
	writeJSON(w, http.StatusOK, page)
	return nil
}

func wireRow(r state.Request) client.HistoryRow {
	out := client.HistoryRow{
		ID: r.ID, Agent: r.Agent, Role: r.Role, TaskID: r.Task, Project: r.Project, Host: r.Host, Worker: r.Worker,
		Services: r.Services, Extensions: r.Extensions, Outcome: r.Outcome, Message: r.Message,
		Containers: make([]client.HistoryContainer, len(r.Containers)), AskedAt: r.AskedAt, DoneAt: r.DoneAt, PhasesMS: r.Phases,
	}
	if out.PhasesMS == nil {
		out.PhasesMS = map[string]int64{}
	}
	if r.Guard >= 0 {
		out.Guard = &r.Guard
	}
	for i, c := range r.Containers {
		out.Containers[i] = client.HistoryContainer{ID: c.ID, Engine: c.Engine, Outcome: c.Outcome}
	}
	return out
}

// onlyParams refuses query parameters that are not known: a misspelt filter would be no filter.
func onlyParams(q url.Values, allowed ...string) error {
	for _, name := range slices.Sorted(maps.Keys(q)) {
		if !slices.Contains(allowed, name) {
			return &client.InputError{Field: clip(name), Problem: "there is no such query parameter", Allowed: allowed}
		}
	}
	return nil
}
