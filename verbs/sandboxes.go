package verbs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/state"
)

// ownSandbox answers GET /api/v1/sandbox: the caller's own, from the record, which it slides. No container is looked at.
func (g *Gateway) ownSandbox(w http.ResponseWriter, r *http.Request, c *call) error {
	if !c.who.agent {
		return forbidden("only an agent has a sandbox of its own")
	}
	rec, err := g.cfg.Bus.Sandbox(r.Context(), c.who.slug, true)
	if errors.Is(err, events.ErrExpired) || (err == nil && len(rec.Engines) == 0) {
		return notFound("a sandbox of yours", "Call request_sandbox() to get one.")
	}
	if err != nil {
		return fmt.Errorf("read the sandbox of %s: %w", c.who.slug, err)
	}
	out := client.Sandbox{
		Agent: rec.Slug, TaskID: rec.Tenancy.Task, Project: rec.Tenancy.Project, ExpiresAt: rec.Expires.UTC(),
		Engines: make(map[string]client.Evidence, len(rec.Engines)),
	}
	for name, e := range rec.Engines {
		if out.Engines[name], err = g.evidence(name, e.Payload, e.Features, rec.Expires); err != nil {
			return err
		}
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// listSandboxes answers GET /api/v1/sandboxes: what lives, without credentials.
func (g *Gateway) listSandboxes(w http.ResponseWriter, r *http.Request, _ *call) error {
	all, err := g.cfg.Bus.Sandboxes(r.Context())
	if err != nil {
		return fmt.Errorf("list sandboxes: %w", err)
	}
	slices.SortFunc(all, func(a, b events.Record) int { return strings.Compare(a.Slug, b.Slug) })
	now := time.Now()
	out := make([]client.SandboxSummary, len(all))
	for i, rec := range all {
		out[i] = client.SandboxSummary{
			Agent: rec.Slug, TaskID: rec.Tenancy.Task, Project: rec.Tenancy.Project, Owner: rec.Tenancy.Owner,
			ExpiresAt: rec.Expires.UTC(), Engines: g.summarize(rec, now),
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"sandboxes": out})
	return nil
}

// summarize lists a sandbox's containers in registry order; what the registry does not know comes last.
func (g *Gateway) summarize(rec events.Record, now time.Time) []client.EngineSummary {
	names := g.cfg.Engines.Names()
	for name := range rec.Engines {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	out := make([]client.EngineSummary, 0, len(rec.Engines))
	for _, name := range names {
		e, ok := rec.Engines[name]
		if !ok {
			continue
		}
		born := streamTime(e.Born)
		out = append(out, client.EngineSummary{
			Engine: name, Container: e.Name, ContainerID: e.ID, Features: append([]string{}, e.Features...), Host: e.Host,
			CreatedAt: born, AgeSeconds: max(int64(now.Sub(born).Seconds()), 0), MemoryBytes: g.cfg.Memory,
		})
	}
	return out
}

// streamTime is when the event of this stream ID was published.
func streamTime(id string) time.Time {
	ms, _, _ := strings.Cut(id, "-")
	n, err := strconv.ParseInt(ms, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(n).UTC()
}

// removeSandbox answers DELETE /api/v1/sandboxes/{agent}: an agent.stopped without an owner. The engagement stays.
func (g *Gateway) removeSandbox(w http.ResponseWriter, r *http.Request, c *call) error {
	slug := r.PathValue("agent")
	if err := checkSlug("agent", slug); err != nil {
		return err
	}
	known, err := g.cfg.Bus.Agent(r.Context(), slug)
	if err != nil {
		return fmt.Errorf("look for the sandbox of %s: %w", slug, err)
	}
	if !known.Known && known.Owner == "" && known.Epoch == "" {
		// Redis may have lost what it knew, while containers live on: an agent that the store knows may have some.
		_, err := g.cfg.Store.Agent(r.Context(), slug)
		if errors.Is(err, state.ErrNotFound) {
			return notFound("a sandbox of "+slug, "GET /api/v1/sandboxes lists those that live.")
		}
		if err != nil {
			return fmt.Errorf("look for agent %s: %w", slug, err)
		}
	}
	if err := g.publishRemoval(r.Context(), c, slug, "removed by an operator"); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// publishRemoval publishes an operator's removal of an agent's sandbox.
func (g *Gateway) publishRemoval(ctx context.Context, c *call, slug, reason string) error {
	data, err := json.Marshal(events.Stopped{Reason: reason})
	if err != nil {
		return fmt.Errorf("write the event: %w", err)
	}
	e := g.event(c, c.requestID, events.AgentStopped, data)
	e.Subject = slug
	if _, err := g.cfg.Bus.Publish(ctx, e); err != nil {
		return fmt.Errorf("publish the removal: %w", err)
	}
	return nil
}
