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

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/state"
)

// endWork answers POST /api/v1/do/{verb} for the work-ending verbs. The answer comes once the event is stored; the
// release of the sandbox is the workers' affair and never fails the verb.
func (g *Gateway) endWork(w http.ResponseWriter, r *http.Request, c *call) error {
	verb := r.PathValue("verb")
	if !slices.Contains(workEnding(), verb) {
		return notFound("the verb "+clip(verb), "The verbs are "+strings.Join(g.cfg.Roles.verbs(), ", ")+".")
	}
	c.name, c.verb = verb, verb
	if !c.who.agent {
		return forbidden("only an agent has work that can end")
	}
	in, err := fields(r, "task_id")
	if err != nil {
		return err
	}
	task, err := in.String("task_id")
	if err != nil {
		return err
	}
	current, err := g.currentTask(r.Context(), c.who.slug)
	if task == "" {
		if err != nil {
			return err
		}
		task = current
	}
	next, warning := "Call give_me_work for the next task; your sandbox, if you had one, goes away now.", ""
	if err == nil { // else an end that names its task is stored all the same, and whether it ends anything is not known
		warning = endsNothing(task, current)
	}
	if warning != "" && current != "" {
		next = "Go on with task " + clip(current) + "; your sandbox, if you have one, stays."
	} else if warning != "" {
		next = "Call give_me_work for the next task."
	}
	data, err := json.Marshal(events.Ended{Verb: verb, TaskID: task})
	if err != nil {
		return fmt.Errorf("write the event: %w", err)
	}
	e := g.event(c, c.requestID, events.WorkEnded, data)
	// Without any engagement nothing is owed: an end that names no task, published late, would end newer work.
	if task != "" {
		_, err = g.publishOwed(r.Context(), e)
	} else {
		_, err = g.cfg.Bus.Publish(r.Context(), e)
	}
	if err != nil {
		return fmt.Errorf("publish the end of the work: %w", err)
	}
	writeJSON(w, http.StatusOK, client.Envelope{
		Status: client.StatusEnded, TaskID: nullable(task), CorrelationID: c.correlationID, RequestID: c.requestID,
		Next: nullable(next), Warning: warning,
	})
	return nil
}

// endsNothing says why an end of this task changes nothing for an agent whose present task, or none, is current; empty
// where it ends it.
func endsNothing(task, current string) string {
	switch {
	case current == "":
		return "nothing has ended: there is no work under way"
	case task != "" && task != current:
		return "nothing has ended: the work under way is on task " + clip(current) + ", not on " + clip(task)
	default:
		return ""
	}
}

// currentTask is the task of the agent's engagement, or empty. What Redis has forgotten stands in the store.
func (g *Gateway) currentTask(ctx context.Context, slug string) (string, error) {
	known, err := g.cfg.Bus.Agent(ctx, slug)
	if err != nil {
		return "", fmt.Errorf("read the engagement of %s: %w", slug, err)
	}
	if known.Known {
		if known.WorkEnded {
			return "", nil
		}
		return known.Task, nil
	}
	e, err := g.cfg.Store.Engagement(ctx, slug)
	if errors.Is(err, state.ErrNotFound) || (err == nil && e.Ended) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the engagement of %s: %w", slug, err)
	}
	return e.Task, nil
}

// publishOwed writes what the event says to the store, with the event as owed; then publishes it; then notes that it
// was. Each step may be repeated, and what dies in between is published by a janitor.
func (g *Gateway) publishOwed(ctx context.Context, e events.Event) (events.Published, error) {
	raw, err := json.Marshal(e)
	if err != nil {
		return events.Published{}, fmt.Errorf("write event %s: %w", e.ID, err)
	}
	err = g.writeState(ctx, e, state.Outgoing{EventID: e.ID, Event: raw})
	if errors.Is(err, state.ErrPublished) { // also when Redis has forgotten it: its time has passed
		return g.cfg.Bus.Known(ctx, e.ID)
	}
	if err != nil {
		return events.Published{}, err
	}
	if err := g.publishEarlier(ctx, e.ID); err != nil {
		return events.Published{}, err
	}
	pub, err := g.cfg.Bus.Publish(ctx, e)
	if err != nil {
		return events.Published{}, fmt.Errorf("publish event %s: %w", e.ID, err)
	}
	settle, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := g.cfg.Store.Published(settle, e.ID); err != nil {
		g.cfg.Log.Warn().Err(err).Str("event", e.ID).Msg("a published event is still noted as owed; it will be published again, to no effect")
	}
	return pub, nil
}

// publishEarlier publishes what the agent is owed from before this event: its events are published in their order, or an
// earlier one would end what a later one began.
func (g *Gateway) publishEarlier(ctx context.Context, eventID string) error {
	owed, err := g.cfg.Store.OwedBefore(ctx, eventID)
	if err != nil {
		return fmt.Errorf("read what is owed before event %s: %w", eventID, err)
	}
	for _, out := range owed {
		if err := g.cfg.Bus.PublishStored(ctx, out.EventID, out.Event); err != nil {
			return fmt.Errorf("publish event %s: %w", out.EventID, err)
		}
	}
	return nil
}

// writeState keeps the engagement's begin or end. An agent.stopped has no state of its own.
func (g *Gateway) writeState(ctx context.Context, e events.Event, out state.Outgoing) error {
	switch e.Type {
	case events.WorkStarted:
		var d events.Started
		if err := json.Unmarshal(e.Data, &d); err != nil {
			return fmt.Errorf("read the data of event %s: %w", e.ID, err)
		}
		err := g.cfg.Store.StartWork(ctx, state.Engagement{
			Agent: e.Subject, Task: d.TaskID, Project: d.Project, Status: d.Status, Owned: d.Owner == "container", StartedAt: e.Time,
		}, out)
		if err != nil {
			return fmt.Errorf("store that the work began: %w", err)
		}
	case events.WorkEnded:
		var d events.Ended
		if err := json.Unmarshal(e.Data, &d); err != nil {
			return fmt.Errorf("read the data of event %s: %w", e.ID, err)
		}
		if _, err := g.cfg.Store.EndWork(ctx, e.Subject, d.TaskID, out); err != nil {
			return fmt.Errorf("store that the work ended: %w", err)
		}
	default: // nothing to store
	}
	return nil
}

// clip keeps what a caller sent short enough to repeat.
func clip(s string) string {
	const most = 60
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "..."
	}
	return fmt.Sprintf("%q", s)
}
