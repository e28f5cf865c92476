package verbs

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

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
	var pub events.Published
	if e.Type == events.AgentStopped {
		pub, err = g.cfg.Bus.Publish(r.Context(), e)
	} else {
		pub, err = g.publishOwed(r.Context(), e)
	}
	if err != nil {
		return fmt.Errorf("publish the event: %w", err)
	}
	writeJSON(w, http.StatusOK, client.Publication{ID: e.ID, StreamID: pub.StreamID, Known: pub.Known, Moot: pub.Moot})
	return nil
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
