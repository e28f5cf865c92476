package failpoint_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/worker/workertest"
)

// converged waits until nothing is under way and all is as it should be, with exactly these engines alive; and stays so.
func (w *world) converged(engines []string, workers int) {
	w.t.Helper()
	var wrong []string
	deadline := time.Now().Add(patience)
	for quiet := 0; quiet < 3; {
		if time.Now().After(deadline) {
			require.Fail(w.t, "the world did not converge", strings.Join(wrong, "\n"))
		}
		if wrong = w.wrong(engines, workers); len(wrong) == 0 {
			quiet++
		} else {
			quiet = 0
		}
		time.Sleep(janitor / 4) // the pace of the poll
	}
}

// wrong lists what is not as it should be now.
func (w *world) wrong(engines []string, workers int) []string {
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
	return append(append(wrong, w.wrongAnswers(rest)...), wrongSet(rest, engines)...)
}

// wrongAnswers: each request was answered once, as it may be.
func (w *world) wrongAnswers(rest workertest.Rest) (wrong []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, may := range w.answers {
		got := rest.Replies[w.bus.ReplyStream(slug, id)]
		if len(got) != 1 || !slices.Contains(may, got[0].State) {
			wrong = append(wrong, fmt.Sprintf("request %s has the answers %+v, one of %v was due", id, got, may))
		}
	}
	return wrong
}

// wrongSet: exactly these engines are recorded and run, and no lease is held.
func wrongSet(rest workertest.Rest, engines []string) (wrong []string) {
	recorded := rest.Records[slug].Engines
	if len(recorded) != len(engines) {
		wrong = append(wrong, fmt.Sprintf("%d engines are recorded, not %v", len(recorded), engines))
	}
	for _, e := range engines {
		c := slices.IndexFunc(rest.Containers, func(c container) bool { return c.ID == recorded[e].ID })
		if c < 0 || !rest.Containers[c].Running || rest.Containers[c].StartedAt != recorded[e].Start {
			wrong = append(wrong, e+" is not recorded, or does not run as it was recorded")
		}
	}
	if rest.Agents[slug].Leased {
		wrong = append(wrong, "a lease is held")
	}
	return wrong
}

// rest gathers how everything stands.
func (w *world) rest(ctx context.Context, workers int) (workertest.Rest, error) {
	r := workertest.Rest{
		Records: map[string]events.Record{}, Agents: map[string]events.AgentState{}, Owners: map[string]string{},
		Replies: map[string][]events.Reply{}, ReplyOf: map[string]string{}, Names: nameOf,
		Stranger: w.stranger, Garbage: w.garbage, Workers: workers,
	}
	records, err := w.bus.Sandboxes(ctx)
	if err != nil {
		return r, err
	}
	for _, rec := range records {
		r.Records[rec.Slug] = rec
	}
	if r.Agents[slug], err = w.bus.Agent(ctx, slug); err != nil {
		return r, err
	}
	if r.Owners[slug] = w.sim.AgentOwner(slug); r.Owners[slug] == "" && !r.Agents[slug].Owned {
		r.Owners[slug] = events.OwnerLease
	}
	if err := w.restOfReplies(ctx, &r); err != nil {
		return r, err
	}
	if err := w.restOfStream(ctx, &r); err != nil {
		return r, err
	}
	r.Containers, r.Truth = w.sim.Containers(), w.sim.Truth()
	return r, nil
}

func (w *world) restOfReplies(ctx context.Context, r *workertest.Rest) error {
	prefix := w.bus.ReplyStream(slug, "")
	streams, err := w.rdb.Keys(ctx, prefix+"*").Result()
	if err != nil {
		return err
	}
	for _, stream := range streams {
		replies, err := w.bus.Replies(ctx, slug, strings.TrimPrefix(stream, prefix), "")
		if err != nil {
			return err
		}
		r.ReplyOf[stream], r.Replies[stream] = slug, slices.DeleteFunc(replies, func(p events.Reply) bool { return !p.Terminal() })
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
	entries, err := w.rdb.XRange(w.t.Context(), "{"+w.cell+"}:audit", "-", "+").Result()
	require.NoError(w.t, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	marks, err := workertest.ReadMarks(append(w.audit, entries...))
	require.NoError(w.t, err)
	require.NotEmpty(w.t, marks, "no script wrote an audit")
	past := workertest.Past{Truth: w.sim.Truth(), Asked: w.asked, TTL: (12 * time.Hour).Microseconds()}
	found, _ := past.Judge(marks)
	require.Empty(w.t, found, "the history breaks the protocol")
}

// flushMark stands in the audit where Redis was emptied.
func flushMark(at time.Time) redis.XMessage {
	return redis.XMessage{ID: "flush", Values: map[string]any{"k": string(workertest.MarkFlush), "us": fmt.Sprint(at.UnixMicro())}}
}

// closed ends the work, and demands that nothing of it is left: no container, no record, no lease, no credentials.
func (w *world) closed() {
	w.t.Helper()
	w.end()
	w.converged(nil, 1)
	rest, err := w.rest(w.t.Context(), 1)
	require.NoError(w.t, err)
	for stream, replies := range rest.Replies {
		for _, p := range replies {
			require.Empty(w.t, p.Engines, "%s still holds credentials", stream)
		}
	}
}
