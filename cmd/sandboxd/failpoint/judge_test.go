package failpoint_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/worker/workertest"
)

// converged waits until nothing is under way and all is as it should be, with exactly these engines alive; and stays so.
func (w *world) converged(alive []string, workers int) {
	w.t.Helper()
	var wrong []string
	deadline := time.Now().Add(patience)
	for quiet := 0; quiet < 5; { // longer than a janitor's interval
		if time.Now().After(deadline) {
			require.Fail(w.t, "the world did not converge", strings.Join(wrong, "\n"))
		}
		if wrong = w.wrong(alive, workers); len(wrong) == 0 {
			quiet++
		} else {
			quiet = 0
		}
		time.Sleep(w.times.janitor / 4) // the pace of the poll
	}
}

// wrong lists what is not as it should be now.
func (w *world) wrong(alive []string, workers int) []string {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	rest, err := w.rest(ctx, workers)
	if err != nil {
		return []string{err.Error()}
	}
	var wrong []string
	for _, v := range rest.Judge() {
		wrong = append(wrong, v.Check+": "+v.Detail)
	}
	return slices.Concat(wrong, w.wrongAnswers(rest), w.wrongSet(rest, alive), w.wrongPool(ctx, w.ready))
}

// wrongAnswers: each request was answered once, as it may be.
func (w *world) wrongAnswers(rest workertest.Rest) (wrong []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, may := range w.answers {
		got := rest.Replies[w.bus.ReplyStream(w.slug, id)]
		if len(got) != 1 || !slices.Contains(may, got[0].State) {
			wrong = append(wrong, fmt.Sprintf("request %s has the answers %+v, one of %v was due", id, got, may))
		}
	}
	return wrong
}

// wrongSet: exactly these engines are recorded and run, and no lease is held.
func (w *world) wrongSet(rest workertest.Rest, alive []string) (wrong []string) {
	recorded := rest.Records[w.slug].Engines
	if len(recorded) != len(alive) {
		wrong = append(wrong, fmt.Sprintf("%d engines are recorded, not %v", len(recorded), alive))
	}
	for _, e := range alive {
		c := slices.IndexFunc(rest.Containers, func(c container) bool { return c.ID == recorded[e].ID })
		if c < 0 || !rest.Containers[c].Running || rest.Containers[c].StartedAt != recorded[e].Start {
			wrong = append(wrong, e+" is not recorded, or does not run as it was recorded")
		}
	}
	if rest.Agents[w.slug].Leased {
		wrong = append(wrong, "a lease is held")
	}
	return wrong
}

// rest gathers how everything stands.
func (w *world) rest(ctx context.Context, workers int) (workertest.Rest, error) {
	r := workertest.Rest{
		Agents: map[string]events.AgentState{}, Owners: map[string]string{},
		Replies: map[string][]events.Reply{}, ReplyOf: map[string]string{}, Names: nameOf,
		Stranger: w.stranger, Garbage: w.garbage, Workers: workers,
	}
	var err error
	if r.Records, err = workertest.Records(ctx, w.bus); err != nil {
		return r, err
	}
	if r.Agents[w.slug], err = w.bus.Agent(ctx, w.slug); err != nil {
		return r, err
	}
	if r.Owners[w.slug] = w.owner(); r.Owners[w.slug] == "" && !r.Agents[w.slug].Owned {
		r.Owners[w.slug] = events.OwnerLease
	}
	if err := w.restOfReplies(ctx, &r); err != nil {
		return r, err
	}
	if err := w.restOfStream(ctx, &r); err != nil {
		return r, err
	}
	if w.sim != nil {
		r.Containers, r.Truth, r.Ceilings = w.sim.Containers(), w.sim.Truth(), map[string]int{"postgres": 1, "redis": 1}
		return r, workertest.Sight{Bus: w.bus, Redis: w.rdb, Cell: w.cell, Store: w.store}.Pools(ctx, &r)
	}
	r.Containers, err = w.containers(ctx)
	return r, err
}

// containers inspects all that lives in this cell of a real engine.
func (w *world) containers(ctx context.Context) (all []container, err error) {
	listed, err := w.runtime.List(ctx, map[string]string{"roboco.sandbox": "1", "roboco.sandbox.cell": w.cell})
	if err != nil {
		return nil, err
	}
	for _, c := range listed {
		full, err := w.runtime.Inspect(ctx, c.ID)
		if err != nil && !errors.Is(err, engines.ErrNotFound) { // one that went meanwhile is gone
			return nil, err
		}
		if err == nil {
			all = append(all, full)
		}
	}
	return all, nil
}

func (w *world) restOfReplies(ctx context.Context, r *workertest.Rest) error {
	prefix := w.bus.ReplyStream(w.slug, "")
	streams, err := w.rdb.Keys(ctx, prefix+"*").Result()
	if err != nil {
		return err
	}
	for _, stream := range streams {
		replies, err := w.bus.Replies(ctx, w.slug, strings.TrimPrefix(stream, prefix), "")
		if err != nil {
			return err
		}
		r.ReplyOf[stream], r.Replies[stream] = w.slug, slices.DeleteFunc(replies, func(p events.Reply) bool { return !p.Terminal() })
	}
	return nil
}

func (w *world) restOfStream(ctx context.Context, r *workertest.Rest) error {
	prefix := "{" + w.cell + "}:"
	var length, dead *redis.IntCmd
	var pending *redis.XPendingCmd
	var consumers *redis.XInfoConsumersCmd
	_, err := w.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		length, dead = p.XLen(ctx, prefix+"events"), p.XLen(ctx, prefix+"dead")
		pending, consumers = p.XPending(ctx, prefix+"events", "workers"), p.XInfoConsumers(ctx, prefix+"events", "workers")
		return nil
	})
	if err != nil {
		return err
	}
	r.Queued, r.DeadLetters, r.Pending, r.Consumers = length.Val(), dead.Val(), pending.Val().Count, len(consumers.Val())
	return nil
}

func nameOf(engine, agent string) string {
	short := map[string]string{"postgres": "pg", "redis": "redis", "mongo": "mongo"}[engine]
	return "roboco-sandbox-" + short + "-" + agent
}

// judgePast runs the history checks over all that the scripts did: right end states are not enough.
func (w *world) judgePast() {
	w.t.Helper()
	if w.sim == nil {
		return // the truth about a real engine is not kept
	}
	entries, err := w.rdb.XRange(w.t.Context(), "{"+w.cell+"}:audit", "-", "+").Result()
	require.NoError(w.t, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	marks, err := workertest.ReadMarks(append(w.audit, entries...))
	require.NoError(w.t, err)
	require.NotEmpty(w.t, marks, "no script wrote an audit")
	truth := w.sim.Truth()
	stored, err := w.store.Claims(w.t.Context(), truth.Pooled())
	require.NoError(w.t, err)
	past := workertest.Past{Truth: truth, Asked: w.asked, TTL: (12 * time.Hour).Microseconds(), Stored: stored}
	found, _ := past.Judge(marks)
	require.Empty(w.t, found, "the history breaks the protocol")
}

// flushMark stands in the audit where Redis was emptied.
func flushMark(at time.Time) redis.XMessage {
	return redis.XMessage{ID: "flush", Values: map[string]any{"k": string(workertest.MarkFlush), "us": fmt.Sprint(at.UnixMicro())}}
}

// closed ends the work, and demands that nothing of it is left: no container, no record, no claim, no lease, no credentials.
func (w *world) closed() {
	w.t.Helper()
	w.end()
	w.converged(nil, 1)
	rest, err := w.rest(w.t.Context(), 1)
	require.NoError(w.t, err)
	claims, err := w.bus.ClaimedBy(w.t.Context(), w.slug)
	require.NoError(w.t, err)
	require.Empty(w.t, claims, "claims are left")
	for stream, replies := range rest.Replies {
		for _, p := range replies {
			require.Empty(w.t, p.Engines, "%s still holds credentials", stream)
		}
	}
}
