package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/roboco/sandboxd/events"
)

// observer says which agents' containers have died. It does not judge by what the feed says: it looks for itself.
type observer struct {
	w    *Worker
	wake chan struct{} // holds one token when there is something to look at

	mu     sync.Mutex
	agents map[string]struct{} // whose containers may have died
	each   bool                // deaths may have gone unheard: every agent is to be looked at
}

func newObserver(w *Worker) *observer {
	return &observer{w: w, wake: make(chan struct{}, 1), agents: map[string]struct{}{}}
}

// one has an agent looked at.
func (o *observer) one(slug string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.agents[slug] = struct{}{}
	o.nudge()
}

// all has every agent looked at.
func (o *observer) all() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.each = true
	o.nudge()
}

func (o *observer) nudge() {
	select {
	case o.wake <- struct{}{}:
	default: // it is awake
	}
}

// taken gives what is to be looked at, once.
func (o *observer) taken() (agents map[string]struct{}, each bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	agents, each = o.agents, o.each
	o.agents, o.each = map[string]struct{}{}, false
	return agents, each
}

// run looks at what it is told to, until ctx ends.
func (o *observer) run(ctx context.Context) {
	if o.w.cfg.ForceLease {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.wake:
		}
		agents, each := o.taken()
		if each {
			o.w.contained("a look at all agents", func() { o.w.stopGoneOwners(ctx) })
		}
		for slug := range agents {
			o.w.contained("a look at an agent's death", func() { o.w.observeAgent(ctx, slug) })
		}
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
