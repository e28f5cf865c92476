package workertest

import (
	"context"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/state"
)

// poolFault lets something happen that only pools have to bear: what waits dies, or is not what would be made now any more.
func (c *chaos) poolFault(ctx context.Context) {
	switch x := c.dice.Below(10); {
	case x < 5:
		if c.sim.KillIdle(c.dice) {
			c.facts.count("fault: idle container killed")
		}
	case x < 7:
		c.facts.count("fault: image replaced")
		c.sim.Retag(imageOf(Pick(c.dice, Engines(c.sim)), c.dice.Once(2)))
	default:
		c.changeProjects(ctx)
	}
}

func imageOf(e engines.Engine, features bool) string {
	if features && e.Feature != "" {
		return e.Feature
	}
	return e.Bare
}

// changeProjects gives a project more features than it is judged by, or takes them away again: the plan of the pools changes.
func (c *chaos) changeProjects(ctx context.Context) {
	all := projects()
	if c.dice.Once(2) {
		all[0].Extensions = Pick(c.dice, []map[string][]string{nil, {"postgres": {"vector"}}})
	} else {
		all[2].Extensions = Pick(c.dice, []map[string][]string{{"redis": {"json"}}, {"redis": {"json", "search"}}})
	}
	for _, p := range []state.Project{all[0], all[2]} {
		if _, _, err := c.store.PutProject(ctx, p); err != nil && ctx.Err() == nil {
			c.facts.bad("harness", "change project %s: %v", p.Slug, err)
		}
	}
	c.facts.count("fault: project changed")
}

// poolsAreGone: with the last worker the pools have been taken down.
func (c *chaos) poolsAreGone() {
	for _, b := range c.sim.Containers() {
		if Waits(b) {
			c.facts.bad("P4", "%s is left with no worker to claim it", b.Name)
		}
	}
}
