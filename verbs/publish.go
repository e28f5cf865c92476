package verbs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/state"
)

// choreographed lists the types that POST /api/v1/events takes.
func choreographed() []string {
	return []string{string(events.AgentStopped), string(events.WorkEnded), string(events.WorkStarted)}
}

// publishEvent answers POST /api/v1/events.
func (g *Gateway) publishEvent(w http.ResponseWriter, r *http.Request, c *call) error {
	raw, err := body(r)
	if err != nil {
		return err
	}
	if err := judgeType(raw); err != nil {
		return err
	}
	e, err := events.Decode(raw)
	if err != nil {
		return err
	}
	if err := checkSlug("subject", e.Subject); err != nil {
		return err
	}
	if e.SpecVersion == "" {
		e.SpecVersion = "1.0"
	}
	if e.Time.IsZero() {
		e.Time = time.Now().UTC()
	}
	if e.TraceParent == "" {
		e.TraceParent = c.traceParent
	}
	warning := g.warn(r.Context(), e)
	var pub events.Published
	if e.Type == events.AgentStopped {
		pub, err = g.cfg.Bus.Publish(r.Context(), e)
	} else {
		pub, err = g.publishOwed(r.Context(), e)
	}
	if err != nil {
		return fmt.Errorf("publish the event: %w", err)
	}
	writeJSON(w, http.StatusOK, client.Publication{ID: e.ID, StreamID: pub.StreamID, Known: pub.Known, Moot: pub.Moot, Warning: warning})
	return nil
}

// warn says what of an event is probably a mistake: it is published all the same, for what it names may come to be. What
// cannot be looked up is not warned of.
func (g *Gateway) warn(ctx context.Context, e events.Event) string {
	switch e.Type {
	case events.WorkStarted:
		var d events.Started
		if json.Unmarshal(e.Data, &d) == nil {
			return g.warnStart(ctx, e.Subject, d)
		}
	case events.WorkEnded:
		var d events.Ended
		if current, err := g.currentTask(ctx, e.Subject); err == nil && json.Unmarshal(e.Data, &d) == nil {
			return endsNothing(d.TaskID, current)
		}
	default: // an agent.stopped goes by its owner, and says itself whether it was moot
	}
	return ""
}

// warnStart looks at what work begins on.
func (g *Gateway) warnStart(ctx context.Context, slug string, d events.Started) string {
	var all []string
	agent, err := g.cfg.Store.Agent(ctx, slug)
	switch {
	case errors.Is(err, state.ErrNotFound):
		all = append(all, "agent "+clip(slug)+" is not known: it has no token to call with")
	case err == nil && agent.Revoked:
		all = append(all, "agent "+clip(slug)+" is revoked: it has no token to call with")
	case err == nil && !slices.Contains(g.cfg.Roles[RequestSandbox], agent.Role):
		all = append(all, "agent "+clip(slug)+" is a "+agent.Role+", a role that gets no sandbox")
	}
	project, err := g.cfg.Store.Project(ctx, d.Project)
	switch {
	case errors.Is(err, state.ErrNotFound):
		all = append(all, "project "+clip(d.Project)+" is not known: requests on it will be refused")
	case err == nil && len(project.Services) == 0:
		all = append(all, "project "+clip(d.Project)+" has opted into no sandbox service: requests on it will be refused")
	}
	if strings.TrimSpace(d.TaskID) != d.TaskID || strings.ContainsFunc(d.TaskID, unicode.IsControl) {
		all = append(all, "task "+clip(d.TaskID)+" begins or ends with a space, or holds a control character; it is kept as it stands")
	}
	warning := strings.Join(all, "; ")
	if warning != "" {
		g.cfg.Log.Warn().Str("agent", slug).Msg("work began: " + warning)
	}
	return warning
}

// judgeType looks at the type before anything else: what may not be published here is refused whatever its data.
func judgeType(raw []byte) error {
	var head struct {
		Type any `json:"type"`
	}
	var syntax *json.SyntaxError
	if err := json.Unmarshal(raw, &head); errors.As(err, &syntax) || len(raw) == 0 {
		return &client.InputError{Problem: "the body is not a JSON object"}
	} else if err != nil {
		return &client.InputError{Problem: "the body must be one event, a JSON object"}
	}
	kind, ok := head.Type.(string)
	switch {
	case !ok || kind == "":
		return &client.InputError{Field: "type", Problem: "it must be a string", Allowed: choreographed()}
	case kind == string(events.SandboxRequested):
		return forbidden("sandbox.requested is published by the verb request_sandbox alone, under the identity of its caller")
	case kind == string(events.LogsRequested):
		return forbidden("logs.requested is published by the gateway alone")
	case !slices.Contains(choreographed(), kind):
		return &client.InputError{Field: "type", Problem: "unknown type " + clip(kind), Allowed: choreographed()}
	}
	return nil
}

func forbidden(why string) *problem {
	return &problem{
		status: http.StatusForbidden, code: client.CodeForbidden, message: "not allowed: " + why,
		remediate: "Use a token whose role may do this; GET /api/v1/verbs says which role yours has.",
	}
}

// checkSlug refuses what cannot name an agent or a project.
func checkSlug(field, slug string) error {
	if state.ValidSlug(slug) {
		return nil
	}
	return &client.InputError{
		Field: field, Problem: clip(slug) + " is not a slug: a to z, 0 to 9 and dashes, no dash first, 1 to 40 characters",
	}
}
