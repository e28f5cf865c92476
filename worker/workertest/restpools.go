package workertest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/state"
)

// Claims is what the durable store knows of containers from pools.
type Claims interface {
	// Claims finds what these containers were claimed for, by ID; what nobody claimed is not in it.
	Claims(ctx context.Context, containerIDs []string) (map[string]state.Claim, error)
}

// Pools fills in what stands in the pools, and what the containers that came from them were claimed for, those that are gone
// included. The containers and the truth of r are there already.
func (s Sight) Pools(ctx context.Context, r *Rest) (err error) {
	ids := r.Truth.Pooled()
	if r.Stored, err = s.Store.Claims(ctx, ids); err != nil {
		return fmt.Errorf("read what the durable store knows of claims: %w", err)
	}
	if r.Claims, err = s.Bus.Claims(ctx, ids); err != nil {
		return fmt.Errorf("read claims: %w", err)
	}
	for id, c := range r.Stored { // as a worker does: the durable store stands in for what Redis does not know
		if known, is := r.Claims[id]; !is || known.Retired {
			r.Claims[id] = events.Claim{
				Slug: c.Agent, Engine: c.Engine, Epoch: c.Epoch, Born: c.Born, Retired: known.Retired,
				Tenancy: events.Tenancy{Task: c.Task, Project: c.Project, Owner: c.Owner},
			}
		}
	}
	r.Truth.Attribute(nil, r.Stored)
	r.Pools = map[string][]string{}
	scan := s.Redis.Scan(ctx, 0, "{"+s.Cell+"}:pool:*", 1000).Iterator()
	for scan.Next(ctx) {
		if r.Pools[scan.Val()], err = s.Redis.LRange(ctx, scan.Val(), 0, -1).Result(); err != nil {
			return fmt.Errorf("read %s: %w", scan.Val(), err)
		}
	}
	if err := scan.Err(); err != nil {
		return fmt.Errorf("list the pools: %w", err)
	}
	return nil
}

// idle gives the containers of pools that nobody has claimed.
func (r Rest) idle() []engines.Container {
	return slices.DeleteFunc(slices.Clone(r.Containers), func(c engines.Container) bool {
		return c.Labels[labelPool] == "" || r.Claims[c.ID].Slug != ""
	})
}

// P2: Redis and the durable store agree on what lives, and nothing that is somebody's was retired.
func restClaims(r Rest, bad func(string, string, ...any)) {
	for _, c := range r.Containers {
		claim, is := r.Claims[c.ID]
		stored, kept := r.Stored[c.ID]
		switch {
		case !is || claim.Slug == "":
		case claim.Retired:
			bad("P2", "%s (%s) was retired, and is %s's", c.Name, short(c.ID), claim.Slug)
		case !kept:
			bad("P2", "%s (%s) is %s's, and the durable store does not know", c.Name, short(c.ID), claim.Slug)
		case stored.Agent != claim.Slug || stored.Epoch != claim.Epoch:
			bad("P2", "%s (%s) is %s's by Redis, and %s's by the durable store", c.Name, short(c.ID), claim.Slug, stored.Agent)
		}
	}
}

// P4: every ready container runs and stands in a pool of its engine, once, under a name that nobody has seen; and there are no
// more of an engine than a host may have.
func restIdle(r Rest, bad func(string, string, ...any)) {
	ready := map[string]int{}
	for _, c := range r.idle() {
		engine, stands := c.Labels[labelEngine], 0
		ready[engine]++
		for key, ids := range r.Pools {
			if slices.Contains(ids, c.ID) && strings.Contains(key, ":"+engine+":") {
				stands++
			}
		}
		switch {
		case !c.Running:
			bad("P4", "%s (%s) waits to be claimed, and does not run", c.Name, short(c.ID))
		case stands != 1:
			bad("P4", "%s (%s), which nobody has claimed, stands in %d pools of %s", c.Name, short(c.ID), stands, engine)
		case !Waits(c):
			bad("P4", "%s (%s) waits to be claimed under a name that somebody has seen", c.Name, short(c.ID))
		}
	}
	for _, engine := range sortedBy(ready) {
		if ready[engine] > r.Ceilings[engine] {
			bad("P4", "%d containers of %s wait to be claimed, the ceiling is %d", ready[engine], engine, r.Ceilings[engine])
		}
	}
}

// P4: whatever stands in a pool is there, and nobody's.
func restPools(r Rest, bad func(string, string, ...any)) {
	for _, key := range sortedBy(r.Pools) {
		for _, id := range r.Pools[key] {
			there := slices.ContainsFunc(r.Containers, func(c engines.Container) bool { return c.ID == id })
			claim := r.Claims[id]
			switch {
			case !there:
				bad("P4", "%s stands in %s, and is gone", short(id), key)
			case claim.Slug != "":
				bad("P4", "%s stands in %s, and is %s's", short(id), key, claim.Slug)
			case claim.Retired:
				bad("P4", "%s stands in %s, and was retired", short(id), key)
			}
		}
	}
}
