package events_test

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/roboco/sandboxd/events"
)

// The steps of holders, on both sides, and the comparison.

func (p *pair) begin(rt *rapid.T) {
	h := p.pick(rt, anyone)
	if !h.looked || rapid.IntRange(0, 2).Draw(rt, "fresh") > 0 {
		p.guard(h)
	}
	if !h.looked {
		rt.Skip("there is no work")
	}
	a := events.BeginArgs{Asked: want("redis"), Set: want("redis", "postgres"), Seen: h.seen, HashOwner: h.owner, Epoch: h.epoch}
	if rapid.Bool().Draw(rt, "features") {
		a.Asked, a.Set = want("redis+json"), want("redis+json", "postgres+citext")
	}
	if r, ok := p.m.record["redis"]; ok {
		switch rapid.IntRange(0, 4).Draw(rt, "state") {
		case 0:
			a.Gone = []string{r.ID}
		case 1:
			a.Moved = []string{r.ID}
		}
	}
	b, err := p.bus.Begin(p.t.Context(), h.d, a)
	p.ok(err)
	late := !h.d.Deadline.IsZero() && time.Until(h.d.Deadline) < 0
	require.Equal(rt, p.m.begin(h, a, late, b.Epoch), b.Verdict)
	switch b.Verdict {
	case events.Run:
		require.True(rt, len(b.Epoch) > len(p.top) || b.Epoch > p.top, "epochs never repeat")
		p.top, h.epoch, h.born, h.tenancy, h.hit = b.Epoch, b.Epoch, b.Born, h.seen, nil
		require.Equal(rt, p.m.asked[h.rid].born, b.Born)
	case events.Hit:
		h.hit = map[string]string{}
		for engine, e := range b.Record {
			h.hit[engine] = e.ID
		}
	case events.Again:
		h.looked = false
	default:
		p.let(h)
	}
}

func (p *pair) running(rt *rapid.T) *holder {
	return p.pick(rt, func(h *holder) bool { return h.epoch != "" })
}

// wants are those of a record or a settlement: an engine, or both.
func (*pair) wants(rt *rapid.T) []events.Want {
	return rapid.SampledFrom([][]events.Want{want("redis"), want("redis", "postgres"), want("redis+json")}).Draw(rt, "asked")
}

func (p *pair) put(rt *rapid.T) {
	h := p.running(rt)
	engine := rapid.SampledFrom([]string{"redis", "redis", "postgres"}).Draw(rt, "engine")
	f := events.Found{Slug: agent, Engine: engine, ID: p.next("c"), Epoch: h.epoch, Born: h.born, Tenancy: h.tenancy, FirstLife: true}
	if i := slices.IndexFunc(p.boxes, func(x events.Found) bool { return x.Engine == engine && x.Tenancy == h.tenancy }); i >= 0 && rapid.IntRange(0, 3).Draw(rt, "known") == 0 {
		f = p.boxes[i] // a take-over
	} else {
		p.boxes = append(p.boxes, f)
	}
	p.recordBox(rt, h, f)
}

// recordBox records a container under a run that may be over.
func (p *pair) recordBox(rt *rapid.T, h *holder, f events.Found) {
	e := events.Entry{ID: f.ID, Epoch: f.Epoch, Born: f.Born, Pooled: f.Pooled, Payload: data("pw-" + f.ID)}
	if rapid.Bool().Draw(rt, "json") {
		e.Features = []string{"json"}
	}
	wants := p.wants(rt)
	got, err := p.bus.Record(p.t.Context(), h.d, h.epoch, f.Engine, e, events.Created, "", wants)
	p.ok(err)
	require.Equal(rt, p.m.put(h, h.epoch, f.Engine, e, wants), got)
	if got == events.Fenced {
		h.epoch, h.looked = "", false
	}
}

func (p *pair) settle(rt *rapid.T) {
	h := p.running(rt)
	var failure *events.Refusal
	if rapid.IntRange(0, 3).Draw(rt, "fails") == 0 {
		failure = &events.Refusal{Guard: 8, Message: "m", Remediate: "r"}
	}
	wants := p.wants(rt)
	got, err := p.bus.Settle(p.t.Context(), h.d, h.epoch, failure, wants)
	p.ok(err)
	require.Equal(rt, p.m.settle(h, h.epoch, failure != nil, wants), got)
	if got == events.Held {
		p.let(h)
		return
	}
	h.epoch, h.looked = "", false
}

func (p *pair) beat(rt *rapid.T) {
	h := p.running(rt)
	got, err := p.bus.Beat(p.t.Context(), h.d, h.epoch)
	p.ok(err)
	require.Equal(rt, p.m.beat(h, h.epoch), got)
	if got == events.Fenced {
		h.epoch, h.looked = "", false
	}
}

func (p *pair) hit(rt *rapid.T) {
	h := p.pick(rt, func(h *holder) bool { return h.hit != nil })
	checked := map[string]string{"redis": h.hit["redis"]}
	got, err := p.bus.AnswerHit(p.t.Context(), h.d, want("redis"), checked)
	p.ok(err)
	require.Equal(rt, p.m.hit(h, want("redis"), checked), got)
	if h.hit, h.looked = nil, false; got != events.Again {
		p.let(h)
	}
}

func (p *pair) refuse(rt *rapid.T) {
	seldom(rt)
	h := p.pick(rt, func(h *holder) bool { return h.epoch == "" })
	got, err := p.bus.Refuse(p.t.Context(), h.d, events.StateRefused, events.Refusal{Guard: 3, Message: "m", Remediate: "r"}, "")
	p.ok(err)
	require.Equal(rt, p.m.refuse(h, events.StateRefused), got)
	p.let(h)
}

// found is one of the containers that were made, as somebody comes upon it.
func (p *pair) found(rt *rapid.T) (events.Found, events.Present) {
	if len(p.boxes) == 0 {
		rt.Skip("nothing was made")
	}
	boxes := p.boxes
	if rapid.Bool().Draw(rt, "the present owner's") { // a container that nobody owns any more is soon of no interest
		boxes = slices.DeleteFunc(slices.Clone(boxes), func(f events.Found) bool { return f.Tenancy.Owner != p.alive })
	}
	if len(boxes) == 0 {
		rt.Skip("nothing of the present owner's")
	}
	f := rapid.SampledFrom(boxes).Draw(rt, "container")
	f.FirstLife = rapid.IntRange(0, 4).Draw(rt, "restarted") > 0
	now := events.Present{Owner: p.alive}
	if p.task != "" {
		now.Task, now.Project = p.task, proj
	}
	return f, now
}

func (p *pair) revoke(rt *rapid.T) {
	f, now := p.found(rt)
	own := rapid.SampledFrom([]string{"", f.Epoch}).Draw(rt, "own")
	got, err := p.bus.Revoke(p.t.Context(), f, own, now)
	p.ok(err)
	require.Equal(rt, p.m.revoke(f, own, now), got)
}

func (p *pair) adopt(rt *rapid.T) {
	f, now := p.found(rt)
	e := events.Entry{ID: f.ID, Epoch: f.Epoch, Born: f.Born, Pooled: f.Pooled, Payload: data("pw-" + f.ID)}
	own := ""
	if p.m.leased() && rapid.Bool().Draw(rt, "own") {
		own = p.m.lease
	}
	got, err := p.bus.Adopt(p.t.Context(), f, own, now, e)
	p.ok(err)
	require.Equal(rt, p.m.adopt(f, own, now, e), got)
}

// compare demands that Redis holds what the machine says.
func (p *pair) compare(rt *rapid.T) {
	ctx := p.t.Context()
	pipe := p.rdb.Pipeline()
	hash, record, fate := pipe.HGetAll(ctx, p.key("agent:"+agent)), pipe.HGetAll(ctx, p.key("record:"+agent)), pipe.HGetAll(ctx, p.key("fate:"+agent))
	stream, dead := pipe.XRange(ctx, p.key("events"), "-", "+"), pipe.XLen(ctx, p.key("dead"))
	waiting := pipe.SMembers(ctx, p.key("waiting:"+agent))
	pending := pipe.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: p.key("events"), Group: "workers", Start: "-", End: "+", Count: 1000})
	replies, states := map[string]*redis.XMessageSliceCmd{}, map[string]*redis.MapStringStringCmd{}
	for rid := range p.m.asked {
		replies[rid], states[rid] = pipe.XRange(ctx, p.bus.ReplyStream(agent, rid), "-", "+"), pipe.HGetAll(ctx, p.key("request:"+rid))
	}
	_, err := pipe.Exec(ctx)
	p.ok(err)
	p.compareHash(rt, hash.Val())
	p.comparePools(rt)
	ids := map[string]string{}
	for engine, raw := range record.Val() {
		var e events.Entry
		p.ok(json.Unmarshal([]byte(raw), &e))
		ids[engine] = e.ID
	}
	want := map[string]string{}
	for engine, e := range p.m.record {
		want[engine] = e.ID
	}
	require.Equal(rt, want, ids, "the record")
	require.Equal(rt, p.m.fate, fate.Val(), "the fates")
	holders := map[string]string{}
	for _, x := range stream.Val() {
		holders[x.ID] = ""
	}
	for _, x := range pending.Val() {
		holders[x.ID] = x.Consumer
	}
	require.Equal(rt, p.m.stream, holders, "the stream and who holds what")
	require.Len(rt, waiting.Val(), len(p.m.wait), "what waits")
	for _, x := range waiting.Val() {
		require.True(rt, p.m.wait[x], "%s waits", x)
	}
	require.EqualValues(rt, p.m.dead, dead.Val(), "dead letters")
	for rid, q := range p.m.asked {
		p.compareRequest(rt, rid, q, states[rid].Val(), replies[rid].Val())
	}
}

func (p *pair) compareHash(rt *rapid.T, h map[string]string) {
	if p.m.known && p.m.since == 0 {
		since, err := strconv.ParseUint(h["since"], 10, 64)
		p.ok(err)
		p.m.since = since
	}
	got := work{task: h["task"], project: h["project"], owner: h["owner"], owned: h["owned"] != "", over: h["over"] != ""}
	require.Equal(rt, p.m.work, got)
	require.Equal(rt, p.m.ended, h["ended"], "the watermark")
	require.Equal(rt, p.m.lease, h["lease"], "the lease")
	require.Equal(rt, p.m.last, h["epoch"], "the epoch")
}

func (p *pair) compareRequest(rt *rapid.T, rid string, q *asked, h map[string]string, reply []redis.XMessage) {
	require.Equal(rt, string(q.state), h["state"], "the state of %s", rid)
	require.Equal(rt, q.born, h["born"], "the time of %s", rid)
	tries, _ := strconv.Atoi(h["tries"])
	require.Equal(rt, q.tries, tries, "attempts of %s", rid)
	require.Equal(rt, q.seen, h["seen"] != "", "whether %s was accepted", rid)
	terminals := 0
	for _, x := range reply {
		if x.Values["state"] == nil {
			continue
		}
		terminals++
		require.Equal(rt, string(q.state), x.Values["state"])
		var handed map[string]struct {
			Entry events.Entry `json:"entry"`
		}
		if raw, _ := x.Values["engines"].(string); raw != "" {
			p.ok(json.Unmarshal([]byte(raw), &handed))
		}
		require.Len(rt, handed, len(q.handed), "credentials in the reply to %s", rid)
		for engine, id := range q.handed {
			require.Equal(rt, id, handed[engine].Entry.ID, "%s in the reply to %s", engine, rid)
		}
	}
	require.Equal(rt, q.shown, terminals == 1, "the terminal reply to %s (%d)", rid, terminals)
}
