package events_test

import (
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/events/eventstest"
)

// modelSteps is how many transitions a run takes at least.
const modelSteps = 12_000

// TestModel calls the transitions in random order on a real Redis, and demands after each that its answer, and all that
// stands in Redis, are what the machine says. Leases end and keys lapse when the walk says so, not with the clock.
func TestModel(t *testing.T) {
	t.Parallel()
	addr, _ := eventstest.StartOwnRedis(t) // it is flushed
	rdb := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 4})
	defer func() { _ = rdb.Close() }()
	var steps atomic.Int64
	for steps.Load() < modelSteps {
		rapid.Check(t, func(rt *rapid.T) {
			p := newPair(t, rt, rdb)
			actions := map[string]func(*rapid.T){
				"start": p.start, "end": p.end, "stop": p.stop, "owner": p.changeOwner, "say twice": p.repeat,
				"ask": p.ask, "ask late": p.askLate, "read": p.read, "read too": p.read, "steal": p.steal, "look": p.look,
				"begin": p.begin, "begin again": p.begin, "begin anew": p.begin, "record": p.put, "record too": p.put, "record more": p.put,
				"settle": p.settle, "beat": p.beat, "hit": p.hit, "hit too": p.hit, "glance": p.glance, "refuse": p.refuse, "revoke": p.revoke, "adopt": p.adopt, "adopt too": p.adopt,
				"stock": p.stock, "claim": p.claim, "record pooled": p.putPooled, "record pooled too": p.putPooled, "retire": p.retire, "forget": p.forget,
				"lease ends": p.leaseEnds, "record lapses": p.recordLapses, "reply lapses": p.replyLapses, "flush": p.flush,
				"": func(rt *rapid.T) { steps.Add(1); p.compare(rt) },
			}
			for range 3 { // Repeat alone takes too few steps to get into trouble
				rt.Repeat(actions)
			}
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d steps", steps.Load())
}

// holder is an entry in the hands of a consumer, with what it saw and where its run is.
type holder struct {
	d         events.Delivery
	name, rid string
	seen      events.Tenancy
	owner     string // the hash's, as it was read before
	stood     string // the redis of the record, as it was read then
	looked    bool
	epoch     string
	tenancy   events.Tenancy // of the run
	born      string
	hit       map[string]string // engine -> container ID, that a begin has shown
}

// pair is the bus and the machine, side by side.
type pair struct {
	t     *testing.T
	rt    *rapid.T
	rdb   *redis.Client
	bus   *events.Bus
	late  *events.Bus // what is asked over it is late at once
	m     *machine
	cell  string
	n     int
	alive string
	task  string // of the durable store
	top   string // the largest epoch ever
	hold  []*holder
	boxes []events.Found
	ready []string // every container that was ever put into the pool
	told  []publication
}

func newPair(t *testing.T, rt *rapid.T, rdb *redis.Client) *pair {
	t.Helper()
	p := &pair{t: t, rt: rt, rdb: rdb, m: newMachine(), cell: eventstest.Cell(), alive: "o0@s"}
	cfg := events.Config{Cell: p.cell, Lease: time.Hour, ClaimIdle: 2 * time.Hour, Accept: time.Hour, Log: zerolog.Nop()}
	p.bus = events.New(rdb, rdb, cfg)
	cfg.Accept = time.Millisecond
	p.late = events.New(rdb, rdb, cfg)
	require.NoError(rt, rdb.FlushAll(t.Context()).Err())
	p.ok(p.group())
	p.publish(p.bus, publication{kind: events.WorkStarted, task: "T-1", project: proj}, events.Started{TaskID: "T-1", Project: proj})
	p.task = "T-1"
	return p
}

func (p *pair) ok(err error) { require.NoError(p.rt, err) }

func (p *pair) group() error {
	_, err := p.bus.Check(p.t.Context())
	return err
}

func (p *pair) key(name string) string { return "{" + p.cell + "}:" + name }

func (p *pair) next(prefix string) string {
	p.n++
	return fmt.Sprint(prefix, p.n)
}

// publish publishes on both sides; without an event ID it is given one.
func (p *pair) publish(b *events.Bus, what publication, body any) {
	if what.id == "" {
		what.id = p.next("e")
		p.told = append(p.told, what)
	}
	got, err := b.Publish(p.t.Context(), events.Event{ID: what.id, Type: what.kind, Subject: agent, Data: data(body)})
	p.ok(err)
	want := p.m.publish(what, got.StreamID)
	if want == moot {
		require.True(p.rt, got.Moot, "%+v is not moot", what)
		return
	}
	require.False(p.rt, got.Moot, "%+v is moot", what)
	require.Equal(p.rt, want, got.StreamID, "%+v", what)
}

func (p *pair) start(rt *rapid.T) {
	s := events.Started{
		TaskID:  rapid.SampledFrom([]string{"T-1", "T-1", "T-2"}).Draw(rt, "task"),
		Project: rapid.SampledFrom([]string{proj, proj, "other"}).Draw(rt, "project"), Owner: rapid.SampledFrom([]string{"", "", "container"}).Draw(rt, "owned"),
	}
	p.task = s.TaskID
	p.publish(p.bus, publication{kind: events.WorkStarted, task: s.TaskID, project: s.Project, owns: s.Owner}, s)
}

func (p *pair) end(rt *rapid.T) {
	seldom(rt)
	e := events.Ended{TaskID: rapid.SampledFrom([]string{"", "T-1", "T-2"}).Draw(rt, "task")}
	if e.TaskID == "" || e.TaskID == p.task {
		p.task = ""
	}
	p.publish(p.bus, publication{kind: events.WorkEnded, task: e.TaskID}, e)
}

func (p *pair) stop(rt *rapid.T) {
	owner := rapid.SampledFrom([]string{"", p.m.work.owner, p.alive, "somebody@else"}).Draw(rt, "owner")
	if owner == events.OwnerLease {
		owner = ""
	}
	p.publish(p.bus, publication{kind: events.AgentStopped, owns: owner}, events.Stopped{Owner: owner})
}

// repeat publishes an event a second time, as a caller does that got no answer.
func (p *pair) repeat(rt *rapid.T) {
	if len(p.told) == 0 {
		rt.Skip("nothing was said")
	}
	what := rapid.SampledFrom(p.told).Draw(rt, "event")
	var body any
	switch what.kind {
	case events.WorkStarted:
		body = events.Started{TaskID: what.task, Project: what.project, Owner: what.owns}
	case events.WorkEnded:
		body = events.Ended{TaskID: what.task}
	case events.AgentStopped:
		body = events.Stopped{Owner: what.owns}
	default:
		body = events.Requested{RequestID: what.rid}
	}
	p.publish(p.bus, what, body)
}

func (p *pair) changeOwner(rt *rapid.T) {
	seldom(rt)
	seldom(rt)
	p.alive = rapid.SampledFrom([]string{p.next("o") + "@s", events.OwnerLease}).Draw(rt, "owner")
}

func (p *pair) ask(*rapid.T) { p.askOn(p.bus) }

func (p *pair) askLate(rt *rapid.T) {
	seldom(rt)
	p.askOn(p.late)
	time.Sleep(3 * time.Millisecond) // until it is late, by the server's clock
}

func (p *pair) askOn(b *events.Bus) {
	rid := p.next("r")
	p.publish(b, publication{kind: events.SandboxRequested, rid: rid}, events.Requested{RequestID: rid})
}

// read takes all that is new, as one consumer.
func (p *pair) read(rt *rapid.T) {
	name := rapid.SampledFrom([]string{me, other}).Draw(rt, "consumer")
	found, err := p.rdb.XReadGroup(p.t.Context(), &redis.XReadGroupArgs{Group: "workers", Consumer: name, Streams: []string{p.key("events"), ">"}, Count: 100, Block: -1}).Result()
	if err != nil {
		return // nothing is there
	}
	for _, x := range found[0].Messages {
		p.m.stream[x.ID] = name
		p.take(x, name)
	}
}

// steal gives a pending entry to a consumer, while the first may go on.
func (p *pair) steal(rt *rapid.T) {
	pending, err := p.rdb.XPendingExt(p.t.Context(), &redis.XPendingExtArgs{Stream: p.key("events"), Group: "workers", Start: "-", End: "+", Count: 100}).Result()
	if err != nil || len(pending) == 0 {
		rt.Skip("nothing is pending")
	}
	x := rapid.SampledFrom(pending).Draw(rt, "entry")
	name := rapid.SampledFrom([]string{me, other}).Draw(rt, "consumer")
	got, err := p.rdb.XClaim(p.t.Context(), &redis.XClaimArgs{Stream: p.key("events"), Group: "workers", Consumer: name, Messages: []string{x.ID}}).Result()
	p.ok(err)
	for _, x := range got {
		p.m.stream[x.ID] = name
		p.take(x, name)
	}
}

// take holds a request, and finishes everything else at once.
func (p *pair) take(x redis.XMessage, name string) {
	d, err := events.Deliver(x, name)
	p.ok(err)
	if d.Event.Type != events.SandboxRequested {
		mine, err := p.bus.Finish(p.t.Context(), d)
		p.ok(err)
		require.True(p.rt, mine)
		p.m.finish(x.ID)
		return
	}
	var q events.Requested
	p.ok(json.Unmarshal(d.Event.Data, &q))
	p.hold = append(p.hold, &holder{d: d, name: name, rid: q.RequestID})
}

func (p *pair) pick(rt *rapid.T, fits func(*holder) bool) *holder {
	var some []*holder
	for _, h := range p.hold {
		if fits(h) {
			some = append(some, h)
		}
	}
	if len(some) == 0 {
		rt.Skip("nobody is there")
	}
	return rapid.SampledFrom(some).Draw(rt, "holder")
}

func (p *pair) let(h *holder) {
	for i, x := range p.hold {
		if x == h {
			p.hold = append(p.hold[:i], p.hold[i+1:]...)
			return
		}
	}
}

func anyone(*holder) bool { return true }

// look is what guards see: the hash first, the container afterwards. It may be old by the time begin is called.
func (p *pair) look(rt *rapid.T) { p.guard(p.pick(rt, anyone)) }

func (p *pair) guard(h *holder) {
	w := p.m.work
	task, project := w.task, w.project
	if task == "" && !w.over {
		task, project = p.task, proj
	}
	h.looked, h.owner, h.stood = task != "", w.owner, p.m.record["redis"].ID
	h.seen = events.Tenancy{Task: task, Project: project, Owner: p.alive}
}

func (p *pair) leaseEnds(rt *rapid.T) {
	seldom(rt)
	if p.m.lease == "" {
		rt.Skip("there is none")
	}
	p.ok(p.rdb.HSet(p.t.Context(), p.key("agent:"+agent), "until", 1).Err())
	p.m.live = false
}

func (p *pair) recordLapses(rt *rapid.T) {
	seldom(rt)
	p.ok(p.rdb.Del(p.t.Context(), p.key("record:"+agent)).Err())
	clear(p.m.record)
}

func (p *pair) replyLapses(rt *rapid.T) {
	seldom(rt)
	for rid, q := range p.m.asked {
		p.ok(p.rdb.Del(p.t.Context(), p.bus.ReplyStream(agent, rid)).Err())
		q.shown, q.handed = false, nil
	}
}

func (p *pair) flush(rt *rapid.T) {
	seldom(rt)
	p.ok(p.rdb.FlushAll(p.t.Context()).Err())
	p.m, p.told = newMachine(), nil
	p.ok(p.group())
}
