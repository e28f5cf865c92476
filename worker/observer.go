package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
)

// observe listens for the deaths of agents' containers and says so. Whenever the feed breaks, deaths may have gone
// unheard: the janitor then looks at everybody.
func (w *Worker) observe(ctx context.Context) {
	if w.cfg.ForceLease {
		return
	}
	for wait := 100 * time.Millisecond; ctx.Err() == nil; wait = min(wait*2, 5*time.Second) {
		err := w.cfg.Runtime.Deaths(ctx, func() { wait = 100 * time.Millisecond; w.stopGoneOwners(ctx) }, func(d engines.Death) {
			if slug, ok := strings.CutPrefix(d.Name, agentPrefix); ok && d.Labels[labelSandbox] == "" {
				w.contained("a look at an agent's death", func() { w.observeAgent(ctx, slug) })
			}
		})
		if ctx.Err() != nil {
			return
		}
		w.cfg.Log.Warn().Err(err).Dur("again_in", wait).Msg("the container engine's event feed broke")
		_ = pause(ctx, wait)
	}
}

// stopGoneOwners looks at every agent that has a sandbox.
func (w *Worker) stopGoneOwners(ctx context.Context) {
	owners, err := w.cfg.Bus.Owners(ctx)
	if err != nil {
		w.cfg.Log.Warn().Err(err).Msg("could not read whose sandboxes live")
		return
	}
	for slug, owner := range owners {
		if owner != "" && owner != events.OwnerLease {
			w.observeAgent(ctx, slug)
		}
	}
}

// observeAgent reads the hash's owner first and looks at the engine afterwards: only so does a stop never hit an owner
// that came in between.
func (w *Worker) observeAgent(ctx context.Context, slug string) {
	hash, err := w.cfg.Bus.Agent(ctx, slug)
	if err != nil || hash.Owner == "" || hash.Owner == events.OwnerLease {
		return // unread: the janitor's next pass does the same
	}
	alive, err := w.aliveOwner(ctx, slug)
	if err != nil || alive == hash.Owner {
		return
	}
	if err := w.publishStop(ctx, slug, hash.Owner, "its container stopped"); err != nil {
		w.cfg.Log.Warn().Err(err).Str("agent", slug).Msg("an agent's stop was not published; the janitor will")
	}
}

// publishStop says that an owner has gone. It goes by the owner: of several observers one has effect.
func (w *Worker) publishStop(ctx context.Context, slug, owner, reason string) error {
	data, err := json.Marshal(events.Stopped{Owner: owner, Reason: reason})
	if err != nil {
		return fmt.Errorf("encode the stop of %s: %w", slug, err)
	}
	p, err := w.cfg.Bus.Publish(ctx, events.Event{
		SpecVersion: "1.0", ID: uuid.NewString(), Type: events.AgentStopped, Source: "sandboxd/worker/" + w.cfg.Name,
		Subject: slug, Time: time.Now().UTC(), Data: data,
	})
	if err != nil {
		return fmt.Errorf("publish the stop of %s: %w", slug, err)
	}
	if !p.Moot {
		w.cfg.Log.Info().Str("agent", slug).Str("why", reason).Msg("the agent's container is gone; its sandbox ends")
	}
	return nil
}
