package events_test

import (
	"fmt"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/roboco/sandboxd/events"
)

// claim takes a container from the pool for a run that may be over by now.
func (w *walk) claim(rt *rapid.T) {
	h := w.running(rt)
	if h == nil {
		rt.Skip("nobody runs")
	}
	w.n++
	ctx, id := w.t.Context(), fmt.Sprint("c", w.n)
	stocked, err := w.bus.Stock(ctx, reds(), id)
	w.ok(err)
	require.True(rt, stocked)
	c, f, err := w.bus.Claim(ctx, h.d, h.epoch, "redis", []events.Pool{reds()})
	w.ok(err)
	if f == events.Fenced {
		h.epoch, h.looked = "", false
		return
	}
	require.NotEmpty(rt, c.ID)
	require.Nil(rt, w.boxes[c.ID], "%s is claimed a second time", c.ID)
	require.Equal(rt, h.tenancy, c.Tenancy)
	require.Equal(rt, h.born, c.Born)
	b := &box{Found: events.Found{
		Slug: agent, Engine: "redis", ID: c.ID, Epoch: c.Epoch, Born: c.Born, Tenancy: c.Tenancy, FirstLife: true, Pooled: true,
	}}
	w.boxes[c.ID] = b
	if rapid.Bool().Draw(rt, "at once") {
		w.put(rt, h, b)
	}
}

// checkClaims: whatever is recorded from a pool has a claim that is the agent's and of its owner, so it cannot be offered again.
func (w *walk) checkClaims(rt *rapid.T, sb events.Record) {
	for _, e := range sb.Engines {
		if !e.Pooled {
			continue
		}
		claims, err := w.bus.Claims(w.t.Context(), []string{e.ID})
		w.ok(err)
		require.Equal(rt, agent, claims[e.ID].Slug, "%s is recorded without a claim", e.ID)
		require.Equal(rt, sb.Tenancy.Owner, claims[e.ID].Tenancy.Owner, "%s was claimed for another", e.ID)
		mine, err := w.bus.ClaimedBy(w.t.Context(), agent)
		w.ok(err)
		require.Contains(rt, mine, e.ID)
		offered, err := w.bus.Stock(w.t.Context(), reds(), e.ID)
		w.ok(err)
		require.False(rt, offered)
	}
}
