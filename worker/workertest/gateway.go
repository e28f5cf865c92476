package workertest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/state"
)

// What a gateway does for the agents: it stores, publishes until it is told that it is published, and waits for replies.

// startWork begins or confirms an engagement.
func (c *chaos) startWork(slug, id, task, project string, owned bool) {
	d := events.Started{TaskID: task, Project: project}
	if owned {
		d.Owner = "container"
	}
	e := event(id, events.WorkStarted, slug, d)
	c.facts.works(slug, task)
	err := c.store.StartWork(c.facts.over, state.Engagement{Agent: slug, Task: task, Project: project, Owned: owned}, owed(e))
	c.publishOwed(e, err)
}

// endWork ends whatever the agent works on.
func (c *chaos) endWork(slug, id string) {
	e := event(id, events.WorkEnded, slug, events.Ended{Verb: "i_am_done"})
	c.facts.works(slug, "")
	_, err := c.store.EndWork(c.facts.over, slug, "", owed(e))
	c.publishOwed(e, err)
}

func (c *chaos) publishOwed(e events.Event, stored error) {
	if stored != nil {
		c.facts.bad("harness", "store event %s: %v", e.ID, stored)
		return
	}
	if _, ok := c.publish(e); ok {
		_ = c.store.Published(c.facts.over, e.ID) // else the janitor publishes it once more
	}
}

// sayStopped says that an owner has gone; an empty one is an operator's removal.
func (c *chaos) sayStopped(slug, id, owner string) {
	if p, ok := c.publish(event(id, events.AgentStopped, slug, events.Stopped{Owner: owner})); ok && owner != "" {
		if p.Moot {
			c.facts.count("stops told too late")
		} else {
			c.facts.count("stops told in time")
		}
	}
}

func event(id string, t events.Type, slug string, data any) events.Event {
	raw, _ := json.Marshal(data) // of our own types: it cannot fail
	return events.Event{SpecVersion: "1.0", ID: id, Type: t, Source: "workertest", Subject: slug, Time: time.Now().UTC(), Data: raw}
}

func owed(e events.Event) state.Outgoing {
	raw, _ := json.Marshal(e)
	return state.Outgoing{EventID: e.ID, Event: raw}
}

// publish repeats until the event is stored; false when the run is over first.
func (c *chaos) publish(e events.Event) (events.Published, bool) {
	for {
		ctx, cancel := context.WithTimeout(c.facts.over, 2*time.Second)
		p, err := c.bus.Publish(ctx, e)
		cancel()
		if err == nil {
			return p, true
		}
		if !errors.Is(err, events.ErrUnavailable) && !errors.Is(err, events.ErrFull) {
			c.facts.bad("harness", "publish %s: %v", e.ID, err)
			return p, false
		}
		if !wait(c.facts.over, 30*time.Millisecond) {
			return p, false
		}
	}
}

// request publishes a request; the function it returns waits for the terminal reply and checks it.
func (c *chaos) request(slug, project string, q events.Requested, a Asked) (collect func() events.Reply) {
	c.facts.ask(q.RequestID, a)
	e, began := event("req:"+q.RequestID, events.SandboxRequested, slug, q), time.Now()
	c.publish(e)
	return func() events.Reply {
		r, progressed, ok := c.await(slug, q.RequestID, e)
		if !ok {
			c.facts.bad("H5", "%s: request %s was never answered", slug, q.RequestID)
			return events.Reply{}
		}
		c.checkReply(slug, project, q, r)
		if refusedLiving(r, a.Owner, c.sim.AgentOwner(slug)) {
			c.facts.bad("H10", "request %s was refused for its owner had gone, and %s lives", q.RequestID, a.Owner)
		}
		c.facts.answered(q.RequestID, stateOf(r), float64(time.Since(began).Microseconds())/1000, !progressed)
		return r
	}
}

// refusedLiving says whether a reply takes the asker's container for gone while it is the one that lives. A life does not end
// and begin again: who lives after the reply has lived all the time since the request.
func refusedLiving(r events.Reply, asker, now string) bool {
	gone := r.State == events.StateRefused && r.Refusal != nil && r.Refusal.Guard == 2 && strings.Contains(r.Refusal.Message, "is gone")
	return gone && asker != events.OwnerLease && asker == now
}

func stateOf(r events.Reply) events.State {
	if r.Blanked {
		return "blanked"
	}
	return r.State
}

// await follows the reply stream, and publishes the request again where no reply comes.
func (c *chaos) await(slug, rid string, e events.Event) (last events.Reply, progressed, ok bool) {
	for {
		ctx, cancel := context.WithTimeout(c.facts.over, resendIn)
		err := c.bus.Follow(ctx, slug, rid, "", func(r events.Reply) error {
			if last = r; !r.Terminal() {
				progressed = true
			}
			return nil
		})
		if err != nil {
			<-waitUnless(ctx, errors.Is(err, events.ErrExpired))
		}
		cancel()
		if err == nil && last.Terminal() {
			c.lapse(slug, rid)
			return last, progressed, true
		}
		if c.facts.over.Err() != nil {
			return last, progressed, false
		}
		c.facts.count("requests sent again")
		c.facts.unsure(rid)
		if p, ok := c.publish(e); ok && !p.Known {
			c.facts.republished()
		}
	}
}

// waitUnless gives a channel that is closed at the end of ctx, or at once.
func waitUnless(ctx context.Context, atOnce bool) <-chan struct{} {
	if atOnce {
		now := make(chan struct{})
		close(now)
		return now
	}
	return ctx.Done()
}

// lapse takes away half of the reply streams that were read: a request that is delivered again then finds none.
func (c *chaos) lapse(slug, rid string) {
	if c.isFaulty() && c.dice.Once(2) {
		ctx, cancel := context.WithTimeout(c.facts.over, time.Second)
		defer cancel()
		if c.adm.Del(ctx, c.bus.ReplyStream(slug, rid)).Err() == nil {
			c.facts.count("fault: reply stream lapsed")
		}
	}
}

// checkReply judges a terminal reply as the agent sees it.
func (c *chaos) checkReply(slug, project string, q events.Requested, r events.Reply) {
	switch {
	case r.State == events.StateOK && !r.Blanked:
		c.checkHanded(slug, project, q, r)
	case r.State != events.StateOK && (r.Refusal == nil || r.Refusal.Message == "" || r.Refusal.Remediate == ""):
		c.facts.bad("envelope", "request %s ended %s without a message and a remedy: %+v", q.RequestID, r.State, r.Refusal)
	}
}

// checkHanded: H9, everything that was asked for is in the reply and nothing else; H5, it is this agent's.
func (c *chaos) checkHanded(slug, project string, q events.Requested, r events.Reply) {
	var asked []string
	standing := map[string][]string{}
	for _, p := range projects() {
		if p.Slug == project {
			asked, standing = p.Services, p.Extensions
		}
	}
	if q.Services != nil {
		asked = q.Services
	}
	for _, engine := range asked {
		got, ok := r.Engines[engine]
		if !ok || !holds(got.Features, q.Extensions[engine]) || !holds(got.Features, standing[engine]) {
			c.facts.bad("H9", "request %s asked for %s with %v and was answered with %v", q.RequestID, engine, q.Extensions[engine], got.Features)
		}
	}
	for engine, got := range r.Engines {
		if !slices.Contains(asked, engine) {
			c.facts.bad("H9", "request %s was answered with %s, which it did not ask for", q.RequestID, engine)
		}
		if !c.sim.OwnedBy(PasswordIn(got.Payload), slug) {
			c.facts.bad("H5", "request %s of %s was answered with another's credentials of %s", q.RequestID, slug, engine)
		}
	}
}
