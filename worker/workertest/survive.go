package workertest

import (
	"context"
	"fmt"
	"time"

	"github.com/roboco/sandboxd/events"
)

// survive is the flush with every sandbox alive and nothing else going on: each keeps its containers and passwords (F1).
func (c *chaos) survive(ctx context.Context) error {
	for i := range c.o.Agents {
		slug := slugOf(i)
		c.startWork(slug, "last:"+slug, slug+"-last", "p0", c.sim.AgentOwner(slug) != "")
	}
	former := c.sandboxes("before")
	if !wait(ctx, grace+200*time.Millisecond) { // the janitor leaves younger containers alone
		return fmt.Errorf("chaos: %w", ctx.Err())
	}
	if !c.flush(ctx) {
		return fmt.Errorf("chaos: redis could not be emptied")
	}
	present := c.sandboxes("after")
	for _, slug := range sortedBy(former) {
		for _, engine := range sortedBy(former[slug]) {
			was, is := former[slug][engine], present[slug][engine]
			if was != is {
				c.facts.bad("F1", "%s: %s has other credentials after the flush (%d containers of it lived)", slug, engine, c.living(slug, engine))
			}
			c.facts.count("sandboxes that survived the last flush")
		}
	}
	return nil
}

func (c *chaos) living(slug, engine string) (n int) {
	truth := c.sim.Truth()
	for _, b := range c.sim.Containers() {
		if truth.Lives[b.ID].OwnedBy(slug) && b.Labels[labelEngine] == engine && b.Running {
			n++
		}
	}
	return n
}

// sandboxes asks for what every agent can have, all at once, and gives the passwords by agent and engine. The first agent
// cannot have a mongo: a stranger bears its name.
func (c *chaos) sandboxes(tag string) map[string]map[string]string {
	type answer struct {
		slug  string
		reply events.Reply
	}
	answers := make(chan answer, c.o.Agents)
	for i := range c.o.Agents {
		slug := slugOf(i)
		go func() { answers <- answer{slug, c.sandbox(slug, tag)} }()
	}
	out := map[string]map[string]string{}
	for range c.o.Agents {
		a := <-answers
		out[a.slug] = map[string]string{}
		for engine, e := range a.reply.Engines {
			out[a.slug][engine] = PasswordIn(e.Payload)
		}
	}
	return out
}

// sandbox asks for one agent, again where it was told to try again.
func (c *chaos) sandbox(slug, tag string) events.Reply {
	q := events.Requested{Role: "developer", Gateway: gatewayName, Services: []string{"postgres", "redis", "mongo"}}
	if slug == slugOf(0) {
		q.Services = q.Services[:2]
	}
	owner := c.sim.AgentOwner(slug)
	if owner == "" {
		owner = events.OwnerLease
	}
	var r events.Reply
	for try := range 10 {
		q.RequestID = fmt.Sprintf("%s-%s-%d", slug, tag, try)
		r = c.request(slug, "p0", q, Asked{Task: slug + "-last", Owner: owner})()
		if r.State == events.StateOK || c.facts.over.Err() != nil {
			return r
		}
	}
	c.facts.bad("F1", "%s got no sandbox with nothing going on: %s %+v", slug, r.State, r.Refusal)
	return r
}
