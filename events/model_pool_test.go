package events_test

import (
	"maps"
	"slices"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/roboco/sandboxd/events"
)

// The machine's part in the pools, and the steps that have to do with them. There is one pool, of redis.

// pools is what the machine knows of them.
type pools struct {
	ready []string                // the pool, oldest first
	claim map[string]events.Claim // container ID -> what it was claimed for, or that it was retired
	mine  map[string]bool         // what was claimed for the agent
}

func newPools() pools { return pools{claim: map[string]events.Claim{}, mine: map[string]bool{}} }

// claimed says that the agent has this container by its claim.
func (p *pools) claimed(id string) bool { return p.claim[id].Slug == agent }

func (p *pools) take(id string, c events.Claim) { p.claim[id], p.mine[id] = c, true }

func (p *pools) stock(id string) bool {
	if _, known := p.claim[id]; known || slices.Contains(p.ready, id) {
		return false
	}
	p.ready = append(p.ready, id)
	return true
}

func (p *pools) retire(id string) events.Fate {
	if p.claimed(id) {
		return events.FateClaimed
	}
	p.ready = slices.DeleteFunc(p.ready, func(x string) bool { return x == id })
	p.claim[id] = events.Claim{Retired: true}
	return events.FateDead
}

func (p *pools) forget(id string) {
	if p.claimed(id) {
		delete(p.claim, id)
	}
	delete(p.mine, id)
}

func (m *machine) claim(h *holder, epoch string) (events.Claimed, events.Fencing) {
	if m.lease != epoch {
		return events.Claimed{}, events.Fenced
	}
	for len(m.pools.ready) > 0 {
		id := m.pools.ready[0]
		m.pools.ready = m.pools.ready[1:]
		if _, known := m.pools.claim[id]; known {
			continue
		}
		c := events.Claim{
			Slug: agent, Engine: "redis", Epoch: epoch, Born: m.request(h.rid, "").born,
			Tenancy: events.Tenancy{Task: m.work.task, Project: m.work.project, Owner: m.work.owner},
		}
		m.pools.take(id, c)
		return events.Claimed{ID: id, Pool: reds(), Claim: c}, events.Held
	}
	return events.Claimed{}, events.Held
}

// pooledOne is a container that was ever put into the pool.
func (p *pair) pooledOne(rt *rapid.T) string {
	if len(p.ready) == 0 {
		rt.Skip("nothing was stocked")
	}
	return rapid.SampledFrom(p.ready).Draw(rt, "container")
}

func (p *pair) stock(rt *rapid.T) {
	var id string
	if len(p.ready) > 0 && rapid.IntRange(0, 2).Draw(rt, "known") == 0 {
		id = p.pooledOne(rt)
	} else {
		id = p.next("p")
		p.ready = append(p.ready, id)
	}
	got, err := p.bus.Stock(p.t.Context(), reds(), id)
	p.ok(err)
	require.Equal(rt, p.m.pools.stock(id), got, "stock %s", id)
}

func (p *pair) claim(rt *rapid.T) {
	h := p.running(rt)
	if len(p.m.pools.ready) == 0 && rapid.Bool().Draw(rt, "ready") {
		p.stock(rt)
	}
	got, f, err := p.bus.Claim(p.t.Context(), h.d, h.epoch, "redis", []events.Pool{jsons(), reds()})
	p.ok(err)
	want, fencing := p.m.claim(h, h.epoch)
	require.Equal(rt, fencing, f)
	require.Equal(rt, want, got)
	if f == events.Fenced {
		h.epoch, h.looked = "", false
	}
	if got.ID != "" {
		p.boxes = append(p.boxes, events.Found{
			Slug: agent, Engine: "redis", ID: got.ID, Epoch: got.Epoch, Born: got.Born, Tenancy: got.Tenancy, FirstLife: true, Pooled: true,
		})
	}
}

// putPooled records a container that came from the pool, whatever became of its claim, or one that nobody has claimed.
func (p *pair) putPooled(rt *rapid.T) {
	h := p.running(rt)
	var boxes []events.Found
	for _, f := range p.boxes {
		if f.Pooled && f.Tenancy == h.tenancy {
			boxes = append(boxes, f)
		}
	}
	switch {
	case len(p.ready) > 0 && rapid.IntRange(0, 5).Draw(rt, "any") == 0:
		id := p.pooledOne(rt)
		if p.m.pools.claimed(id) {
			rt.Skip("it was claimed")
		}
		boxes = []events.Found{{Slug: agent, Engine: "redis", ID: id, Epoch: h.epoch, Born: h.born, Pooled: true}}
	case len(boxes) == 0:
		p.claim(rt)
		return
	}
	p.recordBox(rt, h, rapid.SampledFrom(boxes).Draw(rt, "container"))
}

func (p *pair) retire(rt *rapid.T) {
	seldom(rt)
	id := p.pooledOne(rt)
	got, err := p.bus.Retire(p.t.Context(), reds(), id)
	p.ok(err)
	require.Equal(rt, p.m.pools.retire(id), got, "retire %s", id)
}

func (p *pair) forget(rt *rapid.T) {
	seldom(rt)
	id := p.pooledOne(rt)
	p.ok(p.bus.Forget(p.t.Context(), agent, id))
	p.m.pools.forget(id)
}

// comparePools demands that Redis holds what the machine says of the pool and the claims.
func (p *pair) comparePools(rt *rapid.T) {
	ctx := p.t.Context()
	ready, err := p.bus.Stocked(ctx, reds())
	p.ok(err)
	require.True(rt, slices.Equal(p.m.pools.ready, ready), "the pool: %v, not %v", ready, p.m.pools.ready)
	claims, err := p.bus.Claims(ctx, p.ready)
	p.ok(err)
	require.Equal(rt, p.m.pools.claim, claims, "the claims")
	mine, err := p.bus.ClaimedBy(ctx, agent)
	p.ok(err)
	require.ElementsMatch(rt, slices.Collect(maps.Keys(p.m.pools.mine)), mine, "what was claimed for the agent")
}
