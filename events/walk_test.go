package events_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/roboco/sandboxd/events"
)

// TestWalk calls the transitions in random order, with looks that have grown old, entries that change hands, a clock that
// jumps and a server that forgets, and checks the invariants after every step. The embedded server's clock is the test's.
func TestWalk(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		w := newWalk(t, rt)
		defer w.close()
		actions := map[string]func(*rapid.T){
			"start": w.start, "end": w.end, "stop": w.stop, "owner": w.changeOwner, "clock": w.jump, "flush": w.flush,
			"request": w.ask, "serve": w.serve, "serve too": w.serve, "read": w.take, "steal": w.steal, "look": w.look,
			"begin": w.begin, "begin again": w.begin, "record": w.record, "record too": w.record, "record more": w.record,
			"settle": w.settle, "beat": w.beat, "hit": w.hit, "hit too": w.hit, "glance": w.glance, "refuse": w.refuse,
			"revoke": w.revoke, "adopt": w.adopt, "neighbour": w.neighbour, "give up": w.giveUp, "claim": w.claim,
			"": w.check,
		}
		for range 4 { // Repeat alone takes too few steps to get into trouble
			rt.Repeat(actions)
		}
	})
}

// box is a container as the walk knows it.
type box struct {
	events.Found
	revokedAt time.Time // in this life of Redis
}

// revoked says that a container must not come back: the mark is kept for twice the record's life, when it is long gone.
func (w *walk) revoked(b *box) bool {
	return !b.revokedAt.IsZero() && w.now.Sub(b.revokedAt) < 2*time.Minute
}

// hand is an entry that a consumer holds, with what it saw and where its run is.
type hand struct {
	d       events.Delivery
	seen    events.Tenancy
	owner   string // the hash's, as it was read before
	stood   events.Standing
	looked  bool
	epoch   string
	born    string
	tenancy events.Tenancy // of the run
	hit     map[string]events.Entry
}

type walk struct {
	t     *testing.T
	rt    *rapid.T
	mini  *miniredis.Miniredis
	rdb   *redis.Client
	wait  *redis.Client
	bus   *events.Bus
	now   time.Time
	n     int
	alive string // the agent's container
	task  string // of the durable store
	hands []*hand
	boxes map[string]*box
	ended string
	epoch string
	asked map[string]string // request ID -> stream ID, in this life
	seen  int               // audit entries that were judged
}

func newWalk(t *testing.T, rt *rapid.T) *walk {
	t.Helper()
	w := &walk{t: t, rt: rt, mini: miniredis.NewMiniRedis(), now: time.Unix(1_800_000_000, 0), alive: "o0@s", boxes: map[string]*box{}, asked: map[string]string{}}
	w.mini.ClockTTL(true)
	w.mini.SetTime(w.now)
	require.NoError(rt, w.mini.Start())
	w.rdb = redis.NewClient(&redis.Options{Addr: w.mini.Addr()})
	w.wait = redis.NewClient(&redis.Options{Addr: w.mini.Addr()})
	w.bus = events.New(w.rdb, w.wait, events.Config{Cell: "walk", Audit: true, TTL: time.Minute, Attempts: 50, Max: places, Patience: 30 * time.Second, Log: zerolog.Nop()})
	w.group()
	w.work("T-1", "")
	return w
}

// seldom lets an action that ends much happen one time in four.
func seldom(rt *rapid.T) {
	if rapid.IntRange(0, 3).Draw(rt, "seldom") > 0 {
		rt.Skip("not now")
	}
}

func (w *walk) close() {
	_ = w.rdb.Close()
	_ = w.wait.Close()
	w.mini.Close()
}

func (w *walk) ok(err error) {
	w.t.Helper()
	require.NoError(w.rt, err)
}

func (w *walk) group() {
	_, err := w.bus.Check(w.t.Context())
	w.ok(err)
}

func (w *walk) publish(kind events.Type, v any) events.Published {
	w.n++
	p, err := w.bus.Publish(w.t.Context(), events.Event{ID: fmt.Sprint("e", w.n), Type: kind, Subject: agent, Data: data(v)})
	w.ok(err)
	return p
}

func (w *walk) start(rt *rapid.T) {
	w.work(rapid.SampledFrom([]string{"T-1", "T-1", "T-2"}).Draw(rt, "task"), rapid.SampledFrom([]string{"", "container"}).Draw(rt, "owned"))
}

func (w *walk) work(task, owner string) {
	w.task = task
	w.publish(events.WorkStarted, events.Started{TaskID: w.task, Project: proj, Owner: owner})
}

func (w *walk) end(rt *rapid.T) {
	seldom(rt)
	task := rapid.SampledFrom([]string{"", "T-1", "T-2"}).Draw(rt, "task")
	if task == "" || task == w.task {
		w.task = ""
	}
	w.publish(events.WorkEnded, events.Ended{TaskID: task})
}

func (w *walk) stop(rt *rapid.T) {
	if rapid.IntRange(0, 3).Draw(rt, "operator") == 0 {
		w.publish(events.AgentStopped, events.Stopped{})
		return
	}
	a, err := w.bus.Agent(w.t.Context(), agent)
	w.ok(err)
	if a.Owner != "" && a.Owner != w.alive {
		w.publish(events.AgentStopped, events.Stopped{Owner: a.Owner})
	}
}

func (w *walk) changeOwner(rt *rapid.T) {
	seldom(rt)
	w.n++
	w.alive = fmt.Sprint("o", w.n, "@s")
}

func (w *walk) ask(*rapid.T) {
	w.n++
	id := fmt.Sprint("r", w.n)
	w.asked[id] = w.publish(events.SandboxRequested, events.Requested{RequestID: id, Gateway: "gw"}).StreamID
}

// take reads all that is new, as one consumer.
func (w *walk) take(rt *rapid.T) {
	name := rapid.SampledFrom([]string{me, other}).Draw(rt, "consumer")
	found, err := w.rdb.XReadGroup(w.t.Context(), &redis.XReadGroupArgs{Group: "workers", Consumer: name, Streams: []string{"{walk}:events", ">"}, Count: 100, Block: -1}).Result()
	if err != nil {
		return // nothing is there
	}
	for _, m := range found[0].Messages {
		w.hold(m, name)
	}
}

// serve is a request that meets a worker at once.
func (w *walk) serve(rt *rapid.T) {
	w.ask(rt)
	w.take(rt)
	h := w.hands[len(w.hands)-1]
	if w.guard(h); h.looked {
		w.open(rt, h)
	}
}

// hold takes a delivery in; what is no request is finished at once.
func (w *walk) hold(m redis.XMessage, name string) {
	d, err := events.Deliver(m, name)
	w.ok(err)
	if d.Event.Type != events.SandboxRequested {
		_, err := w.bus.Finish(w.t.Context(), d)
		w.ok(err)
		return
	}
	w.hands = append(w.hands, &hand{d: d})
}

// steal gives a pending entry to another consumer, while the first may go on.
func (w *walk) steal(rt *rapid.T) {
	pending, err := w.rdb.XPendingExt(w.t.Context(), &redis.XPendingExtArgs{Stream: "{walk}:events", Group: "workers", Start: "-", End: "+", Count: 100}).Result()
	if err != nil || len(pending) == 0 {
		rt.Skip("nothing is pending")
	}
	p := rapid.SampledFrom(pending).Draw(rt, "entry")
	name := rapid.SampledFrom([]string{me, other}).Draw(rt, "consumer")
	got, err := w.rdb.XClaim(w.t.Context(), &redis.XClaimArgs{Stream: "{walk}:events", Group: "workers", Consumer: name, Messages: []string{p.ID}}).Result()
	w.ok(err)
	for _, m := range got {
		w.hold(m, name)
	}
}

// pick draws one of the hands that fit.
func (w *walk) pick(rt *rapid.T, fits func(*hand) bool) *hand {
	var some []*hand
	for _, h := range w.hands {
		if fits(h) {
			some = append(some, h)
		}
	}
	if len(some) == 0 {
		return nil
	}
	return rapid.SampledFrom(some).Draw(rt, "hand")
}

// look is what the guards see: the hash first, the container afterwards. It may be old by the time begin is called.
func (w *walk) look(rt *rapid.T) {
	if h := w.pick(rt, func(*hand) bool { return true }); h != nil {
		w.guard(h)
	}
}

// guard is one look.
func (w *walk) guard(h *hand) {
	stood, err := w.bus.Standing(w.t.Context(), h.d)
	w.ok(err)
	a, task := stood.Agent, stood.Agent.Task
	h.stood = stood
	if !a.Known {
		task = w.task
	}
	h.looked, h.owner = task != "", a.Owner
	h.seen = events.Tenancy{Task: task, Project: proj, Owner: w.alive}
}

func (w *walk) begin(rt *rapid.T) {
	h := w.pick(rt, func(*hand) bool { return true })
	if h == nil {
		rt.Skip("nobody is there")
	}
	if !h.looked || rapid.IntRange(0, 2).Draw(rt, "fresh") > 0 {
		w.guard(h)
	}
	if !h.looked {
		rt.Skip("there is no work")
	}
	w.open(rt, h)
}

// open calls begin with what was seen, and does what it says.
func (w *walk) open(rt *rapid.T, h *hand) {
	a := events.BeginArgs{Asked: want("redis"), Set: want("redis", "postgres"), Seen: h.seen, HashOwner: h.owner, Epoch: h.epoch}
	if rapid.Bool().Draw(rt, "both") {
		a.Asked = a.Set
	}
	if sb, err := w.bus.Sandbox(w.t.Context(), agent, false); err == nil && rapid.IntRange(0, 3).Draw(rt, "dead") == 0 {
		if e, ok := sb.Engines["redis"]; ok {
			a.Gone = []string{e.ID}
		}
	}
	a.NoRoom = rapid.IntRange(0, 4).Draw(rt, "no room") == 0
	held := w.holds() && w.owner() == h.seen.Owner // a former owner's ends in begin, and its place with it
	b, err := w.bus.Begin(w.t.Context(), h.d, a)
	w.ok(err)
	switch b.Verdict {
	case events.Full:
		require.False(rt, held, "what lives already was refused for want of a place")
		require.GreaterOrEqual(rt, b.Live, int64(places), "refused, though a place was free")
	case events.Waited:
		require.True(rt, a.NoRoom)
		require.Greater(rt, b.Waited, 30*time.Second)
	case events.Run:
		require.True(rt, held || w.live() <= places, "%d sandboxes at once", w.live())
		require.False(rt, a.NoRoom && (a.Epoch == "" || !held), "a run without room for it")
		require.Greater(rt, b.Epoch, w.epoch, "epochs never repeat")
		w.epoch, h.epoch, h.born, h.tenancy, h.hit = b.Epoch, b.Epoch, b.Born, h.seen, nil
	case events.Hit:
		h.hit = b.Record
	case events.Again:
		h.looked = false
	default:
		w.drop(h)
	}
}

// owner is the hash's.
func (w *walk) owner() string {
	a, err := w.bus.Agent(w.t.Context(), agent)
	w.ok(err)
	return a.Owner
}

func (w *walk) drop(h *hand) {
	for i, x := range w.hands {
		if x == h {
			w.hands = append(w.hands[:i], w.hands[i+1:]...)
			return
		}
	}
}

func (w *walk) running(rt *rapid.T) *hand {
	return w.pick(rt, func(h *hand) bool { return h.epoch != "" })
}

func (w *walk) record(rt *rapid.T) {
	h := w.running(rt)
	if h == nil {
		rt.Skip("nobody is there")
	}
	w.n++
	engine := rapid.SampledFrom([]string{"redis", "postgres"}).Draw(rt, "engine")
	b := &box{Found: events.Found{Slug: agent, Engine: engine, ID: fmt.Sprint("c", w.n), Epoch: h.epoch, Born: h.born, Tenancy: h.tenancy, FirstLife: true}}
	if len(w.boxes) > 0 && rapid.IntRange(0, 3).Draw(rt, "known") == 0 { // a take-over: of its tenancy, and not newer
		for _, x := range w.boxes {
			if x.Engine == engine && x.Tenancy == h.tenancy && x.Epoch <= h.epoch {
				b = x
			}
		}
	}
	w.put(rt, h, b)
}

func (w *walk) put(rt *rapid.T, h *hand, b *box) {
	w.boxes[b.ID] = b
	e := events.Entry{ID: b.ID, Epoch: b.Epoch, Born: b.Born, Pooled: b.Pooled, Payload: data("pw-" + b.ID)}
	f, err := w.bus.Record(w.t.Context(), h.d, h.epoch, b.Engine, e, events.Created, "", want("redis"))
	w.ok(err)
	require.False(rt, f == events.Held && w.revoked(b), "%s was revoked and is recorded", b.ID)
	if f == events.Fenced {
		h.epoch, h.looked = "", false
	}
}

func (w *walk) settle(rt *rapid.T) {
	h := w.running(rt)
	if h == nil {
		rt.Skip("nobody is there")
	}
	var failure *events.Refusal
	if rapid.IntRange(0, 3).Draw(rt, "fails") == 0 {
		failure = &events.Refusal{Guard: 8, Message: "m", Remediate: "r"}
	}
	f, err := w.bus.Settle(w.t.Context(), h.d, h.epoch, failure, want("redis"))
	w.ok(err)
	if f == events.Held {
		w.drop(h)
		return
	}
	h.epoch, h.looked = "", false
}

func (w *walk) beat(rt *rapid.T) {
	h := w.running(rt)
	if h == nil {
		rt.Skip("nobody runs")
	}
	f, err := w.bus.Beat(w.t.Context(), h.d, h.epoch)
	w.ok(err)
	if f == events.Fenced {
		h.epoch, h.looked = "", false
	}
}

func (w *walk) hit(rt *rapid.T) {
	h := w.pick(rt, func(h *hand) bool { return h.hit != nil })
	if h == nil {
		rt.Skip("nobody is there")
	}
	v, err := w.bus.AnswerHit(w.t.Context(), h.d, want("redis"), map[string]string{"redis": h.hit["redis"].ID})
	w.ok(err)
	if h.hit, h.looked = nil, false; v != events.Again {
		w.drop(h)
	}
}

func (w *walk) refuse(rt *rapid.T) {
	h := w.pick(rt, func(h *hand) bool { return h.epoch == "" })
	seldom(rt)
	if h == nil {
		rt.Skip("nobody is there")
	}
	_, err := w.bus.Refuse(w.t.Context(), h.d, events.StateRefused, events.Refusal{Guard: 3, Message: "m", Remediate: "r"}, "")
	w.ok(err)
	w.drop(h)
}
