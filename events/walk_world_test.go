package events_test

import (
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/roboco/sandboxd/events"
)

// What happens around the requests of a walk: containers are found, the clock jumps, the server forgets.

func (w *walk) box(rt *rapid.T) *box {
	if len(w.boxes) == 0 {
		return nil
	}
	ids := make([]string, 0, len(w.boxes))
	for i := 0; i <= w.n; i++ {
		if id := fmt.Sprint("c", i); w.boxes[id] != nil {
			ids = append(ids, id)
		}
	}
	return w.boxes[rapid.SampledFrom(ids).Draw(rt, "box")]
}

func (w *walk) present() events.Present {
	p := events.Present{Owner: w.alive}
	if w.task != "" {
		p.Task, p.Project = w.task, proj
	}
	return p
}

func (w *walk) revoke(rt *rapid.T) {
	b := w.box(rt)
	if b == nil {
		rt.Skip("nothing was made")
	}
	f, err := w.bus.Revoke(w.t.Context(), b.Found, "", w.present())
	w.ok(err)
	sb, err := w.bus.Sandbox(w.t.Context(), agent, false)
	if f == events.FateDead {
		if !w.revoked(b) {
			b.revokedAt = w.now
		}
		require.False(rt, err == nil && sb.Engines[b.Engine].ID == b.ID, "%s is recorded and was revoked", b.ID)
	}
	require.False(rt, w.revoked(b) && f != events.FateDead, "%s was revoked and is %s", b.ID, f)
}

func (w *walk) adopt(rt *rapid.T) {
	b := w.box(rt)
	if b == nil {
		rt.Skip("nothing was made")
	}
	f, err := w.bus.Adopt(w.t.Context(), b.Found, "", w.present(), events.Entry{ID: b.ID, Epoch: b.Epoch, Born: b.Born, Pooled: b.Pooled, Payload: data("pw-" + b.ID)})
	w.ok(err)
	require.False(rt, f == events.FateAdopted && (w.revoked(b) || b.Tenancy.Owner != w.alive), "%+v was adopted", b)
}

func (w *walk) jump(rt *rapid.T) {
	d := rapid.SampledFrom([]time.Duration{time.Millisecond, 10 * time.Millisecond, time.Second, time.Second, 2 * time.Second, 16 * time.Second, 2 * time.Minute}).Draw(rt, "by")
	w.now = w.now.Add(d)
	w.mini.SetTime(w.now)
}

func (w *walk) flush(rt *rapid.T) {
	seldom(rt)
	seldom(rt)
	w.now = w.now.Add(time.Millisecond)
	w.mini.SetTime(w.now)
	w.mini.FlushAll()
	w.ended, w.seen = "", 0
	w.asked = map[string]string{}
	for _, b := range w.boxes {
		b.revokedAt = time.Time{}
	}
	w.group()
}

// places is how many sandboxes a walk's cell may have at once.
const places = 2

// neighbour is another agent, of which no more is known here than that it takes a place for a while, or leaves it.
func (w *walk) neighbour(rt *rapid.T) {
	name := rapid.SampledFrom([]string{"n1", "n2"}).Draw(rt, "neighbour")
	if rapid.Bool().Draw(rt, "leaves") {
		w.ok(w.rdb.ZRem(w.t.Context(), "{walk}:live", name).Err())
		return
	}
	until := w.now.Add(rapid.SampledFrom([]time.Duration{time.Second, time.Hour}).Draw(rt, "for"))
	w.ok(w.rdb.ZAdd(w.t.Context(), "{walk}:live", redis.Z{Member: name, Score: float64(until.UnixMilli())}).Err())
}

// live is how many agents hold a sandbox now.
func (w *walk) live() int64 {
	n, err := w.rdb.ZCount(w.t.Context(), "{walk}:live", fmt.Sprintf("(%d", w.now.UnixMilli()), "+inf").Result()
	w.ok(err)
	return n
}

// holds says that the agent has a record, or a run under way.
func (w *walk) holds() bool {
	a, err := w.bus.Agent(w.t.Context(), agent)
	w.ok(err)
	_, err = w.bus.Sandbox(w.t.Context(), agent, false)
	return err == nil || a.Leased
}

// checkLive: the agent is counted exactly while it has a record or a lease, and for as long as the longer one of them.
func (w *walk) checkLive(rt *rapid.T, leased bool) {
	score, err := w.rdb.ZScore(w.t.Context(), "{walk}:live", agent).Result()
	counted := err == nil && int64(score) > w.now.UnixMilli()
	until := int64(0)
	if left := w.rdb.PTTL(w.t.Context(), "{walk}:record:"+agent).Val(); left > 0 {
		until = w.now.Add(left).UnixMilli()
	}
	if leased {
		t, err := w.rdb.HGet(w.t.Context(), "{walk}:agent:"+agent, "until").Int64()
		w.ok(err)
		until = max(until, t)
	}
	require.Equal(rt, until > 0, counted, "counted among those that hold a sandbox: until %d, score %v", until, score)
	if counted {
		require.InDelta(rt, until, score, 2, "counted until")
	}
}

// giveUp gives a run back that has made nothing.
func (w *walk) giveUp(rt *rapid.T) {
	h := w.running(rt)
	seldom(rt)
	if h == nil {
		rt.Skip("nobody runs")
	}
	f, err := w.bus.GiveUp(w.t.Context(), h.d, h.epoch)
	w.ok(err)
	if h.epoch, h.looked = "", false; f == events.Held {
		w.drop(h)
	}
}
