package verbs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/state"
)

// Lines of a log.
const (
	defaultLines = 100
	mostLines    = 1000
)

// ownLogs answers GET /api/v1/sandbox/logs.
func (g *Gateway) ownLogs(w http.ResponseWriter, r *http.Request, c *call) error {
	if !c.who.agent {
		return forbidden("only an agent has a sandbox of its own; GET /api/v1/sandboxes/{agent}/logs reads any agent's")
	}
	return g.logs(w, r, c, c.who.slug)
}

// agentLogs answers GET /api/v1/sandboxes/{agent}/logs.
func (g *Gateway) agentLogs(w http.ResponseWriter, r *http.Request, c *call) error {
	slug := r.PathValue("agent")
	if err := checkSlug("agent", slug); err != nil {
		return err
	}
	if _, err := g.cfg.Store.Agent(r.Context(), slug); errors.Is(err, state.ErrNotFound) {
		return notFound("the agent "+slug, "GET /api/v1/agents lists those there are.")
	}
	return g.logs(w, r, c, slug)
}

// logs asks the workers, who hold the container engine, and waits for the one that answers.
func (g *Gateway) logs(w http.ResponseWriter, r *http.Request, c *call, slug string) error {
	wanted, err := g.logsWanted(r.URL.Query())
	if err != nil {
		return err
	}
	wanted.RequestID, wanted.Gateway = newID(), g.cfg.GatewayName
	data, err := json.Marshal(wanted)
	if err != nil {
		return fmt.Errorf("write the event: %w", err)
	}
	e := g.event(c, wanted.RequestID, events.LogsRequested, data)
	e.Subject = slug
	ctx, cancel := context.WithTimeout(r.Context(), g.cfg.LogsTimeout)
	defer cancel()
	if _, err := g.cfg.Bus.Publish(ctx, e); err != nil {
		return fmt.Errorf("ask the workers for logs: %w", err)
	}
	var reply events.Reply
	err = g.cfg.Bus.Follow(ctx, slug, wanted.RequestID, "", func(r events.Reply) error { reply = r; return nil })
	switch {
	case err != nil && ctx.Err() != nil:
		return unavailable(fmt.Sprintf("no worker read the logs within %s", g.cfg.LogsTimeout))
	case errors.Is(err, events.ErrExpired):
		return unavailable("the answer with the logs is gone")
	case err != nil:
		return fmt.Errorf("wait for the logs: %w", err)
	case reply.Refusal != nil:
		p := unavailable(reply.Refusal.Message)
		p.remediate = reply.Refusal.Remediate
		if !reply.Refusal.Retryable {
			p.retryAfter = 0 // the remedy does not say to try again, and neither may the rest
		}
		return p
	}
	out := client.Logs{Logs: map[string]string{}}
	if err := json.Unmarshal(reply.Body, &out); err != nil {
		return fmt.Errorf("read the workers' answer with the logs of %s: %w", slug, err)
	}
	out.Agent = slug
	writeJSON(w, http.StatusOK, out)
	return nil
}

// logsWanted reads the query: engine, lines.
func (g *Gateway) logsWanted(q url.Values) (events.LogsWanted, error) {
	if err := onlyParams(q, "engine", "lines"); err != nil {
		return events.LogsWanted{}, err
	}
	out := events.LogsWanted{Engine: q.Get("engine"), Lines: defaultLines}
	if _, ok := g.cfg.Engines.Lookup(out.Engine); out.Engine != "" && !ok {
		return out, &client.InputError{Field: "engine", Problem: "unknown engine " + clip(out.Engine), Allowed: g.cfg.Engines.Names()}
	}
	if s := q.Get("lines"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > mostLines {
			return out, &client.InputError{Field: "lines", Problem: fmt.Sprintf("it must be a number from 1 to %d", mostLines)}
		}
		out.Lines = n
	}
	return out, nil
}
