package events_test

import (
	"fmt"
	"time"

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
	f, err := w.bus.Adopt(w.t.Context(), b.Found, w.present(), events.Entry{ID: b.ID, Epoch: b.Epoch, Born: b.Born, Payload: data("pw-" + b.ID)})
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
