package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/state"
)

// handleEnded removes what an end has left: the end itself took effect when it was published. An error leaves the
// entry to be delivered again; containers of a later request are spared by revoke.
func (w *Worker) handleEnded(ctx context.Context, d events.Delivery) {
	if d.Ends {
		if err := w.release(ctx, d.Event.Subject, d.Entry); err != nil {
			w.cfg.Log.Warn().Err(err).Str("agent", d.Event.Subject).Msg("release is not complete; left for another delivery")
			return
		}
	}
	w.finish(d)
}

// release stops this process's provisions that the end has overtaken, and removes the agent's dead containers. An
// agent that never had a sandbox costs one look-up.
func (w *Worker) release(ctx context.Context, slug, end string) error {
	hash, err := w.cfg.Bus.Agent(ctx, slug)
	if err != nil {
		return fmt.Errorf("read agent %s: %w", slug, err)
	}
	if hash.Epoch == "" {
		return nil
	}
	w.runs.cancel(slug)
	t := time.Now()
	err = w.removeAll(ctx, slug, reasonEnd)
	w.metrics.release.Observe(time.Since(t).Seconds())
	w.cfg.Log.Debug().Str("agent", slug).Str("end", end).Dur("took", time.Since(t)).Msg("released")
	return err
}

// handleStarted notes that the engagement is owned by a container where one lives, and removes what a change of work
// has ended.
func (w *Worker) handleStarted(ctx context.Context, d events.Delivery) {
	var s events.Started
	if err := json.Unmarshal(d.Event.Data, &s); err == nil && s.Owner == "" {
		alive, err := w.aliveOwner(ctx, d.Event.Subject)
		if err != nil {
			w.cfg.Log.Warn().Err(err).Str("agent", d.Event.Subject).Msg("could not look at the agent's container; left for another delivery")
			return
		}
		if alive != "" {
			w.markOwned(ctx, d.Event.Subject, events.Tenancy{Task: s.TaskID, Project: s.Project})
		}
	}
	w.handleEnded(ctx, d)
}

// markOwned notes, in the hash and in the durable store, that a container owns this engagement: once it is gone, no
// lease takes its place. Best effort: every run of a container notes it again.
func (w *Worker) markOwned(ctx context.Context, slug string, t events.Tenancy) {
	if err := w.cfg.Bus.SetOwned(ctx, slug, t.Task, t.Project); err != nil {
		w.cfg.Log.Warn().Err(err).Str("agent", slug).Msg("could not note the engagement's owner")
	}
	if err := w.cfg.Store.SetOwned(ctx, slug, t.Task, t.Project); err != nil {
		w.cfg.Log.Warn().Err(err).Str("agent", slug).Msg("could not store the engagement's owner")
	}
}

// handleForeign gives effect to an event that an outside choreographer put into the stream by plain XADD: it is
// published anew under its own ID, then this entry is finished.
func (w *Worker) handleForeign(ctx context.Context, d events.Delivery) {
	err := w.announce(ctx, d.Event)
	var invalid *state.InvalidError
	if errors.As(err, &invalid) { // it will never be taken
		_ = w.settled(d, "dead-letter", func(ctx context.Context) error {
			_, err := w.cfg.Bus.DeadLetter(ctx, d, invalid.Error())
			return err
		})
		return
	}
	if err != nil {
		w.cfg.Log.Warn().Err(err).Str("agent", d.Event.Subject).Str("event", string(d.Event.Type)).Msg("a foreign event could not be published; left for another delivery")
		return
	}
	w.finish(d)
}

// announce stores what an event says of an engagement, then publishes it.
func (w *Worker) announce(ctx context.Context, e events.Event) error {
	raw, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode event %s: %w", e.ID, err)
	}
	out := state.Outgoing{EventID: e.ID, Event: raw}
	switch e.Type {
	case events.WorkStarted:
		var s events.Started
		if err := json.Unmarshal(e.Data, &s); err != nil {
			return fmt.Errorf("read event %s: %w", e.ID, err)
		}
		g := state.Engagement{Agent: e.Subject, Task: s.TaskID, Project: s.Project, Status: s.Status, Owned: s.Owner == "container"}
		err = w.cfg.Store.StartWork(ctx, g, out)
	case events.WorkEnded:
		var s events.Ended
		if err := json.Unmarshal(e.Data, &s); err != nil {
			return fmt.Errorf("read event %s: %w", e.ID, err)
		}
		_, err = w.cfg.Store.EndWork(ctx, e.Subject, s.TaskID, out)
	default: // it says nothing of an engagement
	}
	if errors.Is(err, state.ErrPublished) { // also when Redis has forgotten it: its time has passed
		return nil
	}
	if err != nil {
		return fmt.Errorf("store event %s: %w", e.ID, err)
	}
	return w.publishOwed(ctx, out, e)
}

// publishOwed publishes a stored event, after what its agent is owed from before, and marks it so. Publishing twice is harmless.
func (w *Worker) publishOwed(ctx context.Context, out state.Outgoing, e events.Event) error {
	stored := e.Type == events.WorkStarted || e.Type == events.WorkEnded
	if stored {
		if err := w.publishEarlier(ctx, out.EventID); err != nil {
			return err
		}
	}
	if _, err := w.cfg.Bus.Publish(ctx, e); err != nil {
		return fmt.Errorf("publish event %s: %w", out.EventID, err)
	}
	if !stored {
		return nil
	}
	if err := w.cfg.Store.Published(ctx, out.EventID); err != nil {
		return fmt.Errorf("mark event %s as published: %w", out.EventID, err)
	}
	return nil
}

// publishEarlier keeps an agent's events in their order: an earlier one that comes late would end what a later one began.
func (w *Worker) publishEarlier(ctx context.Context, eventID string) error {
	owed, err := w.cfg.Store.OwedBefore(ctx, eventID)
	if err != nil {
		return fmt.Errorf("read what is owed before event %s: %w", eventID, err)
	}
	for _, out := range owed {
		if err := w.cfg.Bus.PublishStored(ctx, out.EventID, out.Event); err != nil {
			return fmt.Errorf("publish event %s: %w", out.EventID, err)
		}
	}
	return nil
}
