package events_test

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/roboco/sandboxd/events"
)

// check judges the state after each step.
func (w *walk) check(rt *rapid.T) {
	w.now = w.now.Add(time.Millisecond)
	w.mini.SetTime(w.now)
	ctx := w.t.Context()
	a, err := w.bus.Agent(ctx, agent)
	w.ok(err)
	require.False(rt, olderID(a.Ended, w.ended), "I1: the watermark fell from %q to %q", w.ended, a.Ended)
	w.ended = a.Ended
	sb, err := w.bus.Sandbox(ctx, agent, false)
	if err == nil {
		require.NotEmpty(rt, a.Owner, "I7: a record without an owner")
		for _, e := range sb.Engines {
			require.True(rt, a.Ended == "" || olderID(a.Ended, e.Born), "I2: %s born %s, ended %s", e.ID, e.Born, a.Ended)
			require.Equal(rt, a.Owner, w.boxes[e.ID].Tenancy.Owner, "I7: %s is another's", e.ID)
			require.False(rt, w.revoked(w.boxes[e.ID]), "I5: %s was revoked", e.ID)
		}
	}
	require.False(rt, a.Leased && a.Owner == "", "I7: a lease without an owner")
	w.checkClaims(rt, sb)
	w.checkLive(rt, a.Leased)
	w.checkReplies(rt, a)
	w.checkAudit(rt)
}

func (w *walk) checkReplies(rt *rapid.T, a events.AgentState) {
	ctx := w.t.Context()
	waiting, err := w.rdb.XRange(ctx, "{walk}:events", "-", "+").Result()
	w.ok(err)
	there := map[string]bool{}
	for _, m := range waiting {
		there[m.ID] = true
	}
	for id, stream := range w.asked {
		state, err := w.rdb.HGet(ctx, "{walk}:request:"+id, "state").Result()
		require.False(rt, err != nil && !there[stream], "I6: %s left the stream without a state", id)
		key := w.bus.ReplyStream(agent, id)
		entries, err := w.rdb.XRange(ctx, key, "-", "+").Result()
		w.ok(err)
		terminals := 0
		for _, m := range entries {
			if m.Values["state"] == nil {
				require.Zero(rt, terminals, "H5: %s: progress after the end", id)
				continue
			}
			terminals++
			require.Equal(rt, state, m.Values["state"])
			raw, _ := m.Values["engines"].(string)
			w.checkHanded(rt, id, stream, raw, a)
		}
		if len(entries) > 0 {
			require.Positive(rt, w.rdb.PTTL(ctx, key).Val())
			require.True(rt, terminals == 1 || state == "" && terminals == 0, "H5: %s has %d terminal replies", id, terminals)
		}
	}
	members, err := w.rdb.SMembers(ctx, "{walk}:waiting:"+agent).Result()
	w.ok(err)
	for _, id := range members {
		require.True(rt, there[id], "%s counts as waiting and is gone", id)
	}
}

// checkHanded judges the credentials that stand in a reply: of no ended sandbox, of no owner that is not the present one.
func (w *walk) checkHanded(rt *rapid.T, id, stream, raw string, a events.AgentState) {
	if raw == "" {
		return
	}
	var handed map[string]struct {
		Entry events.Entry `json:"entry"`
	}
	w.ok(json.Unmarshal([]byte(raw), &handed))
	require.Contains(rt, handed, "redis", "H9")
	for _, x := range handed {
		require.True(rt, a.Ended == "" || olderID(a.Ended, x.Entry.Born), "credentials of %s after an end, in the reply to %s", x.Entry.ID, id)
		require.Equal(rt, a.Owner, w.boxes[x.Entry.ID].Tenancy.Owner, "H10: credentials of another owner, in the reply to %s (%s)", id, stream)
		require.JSONEq(rt, string(data("pw-"+x.Entry.ID)), string(x.Entry.Payload))
	}
}

// checkAudit judges what the scripts did since the last step: I3.
func (w *walk) checkAudit(rt *rapid.T) {
	log, err := w.rdb.XRange(w.t.Context(), "{walk}:audit", "-", "+").Result()
	w.ok(err)
	for _, m := range log[w.seen:] {
		require.Equal(rt, m.Values["ep"], m.Values["lease"], "I3: %v", m.Values)
	}
	w.seen = len(log)
}

// olderID compares stream IDs; an empty one is the beginning of time.
func olderID(x, y string) bool {
	var a, b [2]uint64
	_, _ = fmt.Sscanf(x, "%d-%d", &a[0], &a[1])
	_, _ = fmt.Sscanf(y, "%d-%d", &b[0], &b[1])
	return a[0] < b[0] || a[0] == b[0] && a[1] < b[1]
}
