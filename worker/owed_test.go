package worker_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/state"
)

// A gateway stored the end of the work and died before Redis heard of it, and the same task begins again by another way: the end
// goes first, or it would be lost, and the second work be given what the first one left.
func TestOwedGoesFirst(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.worker()
	a := s.agentAtWork()
	before := s.request(a)["redis"]
	e := events.Event{SpecVersion: "1.0", ID: a + "-end", Type: events.WorkEnded, Source: "test", Subject: a, Time: time.Now().UTC()}
	e.Data = json.RawMessage(`{"verb":"i_am_done","task_id":"T-1"}`)
	raw, err := json.Marshal(e)
	require.NoError(t, err)
	_, err = s.store.EndWork(t.Context(), a, "T-1", state.Outgoing{EventID: e.ID, Event: raw})
	require.NoError(t, err)
	require.NoError(t, s.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: "{" + s.cfg.Cell + "}:events", Values: []any{
		"specversion", "1.0", "id", a + "-again", "type", "work.started", "source", "outside", "subject", a, "data", `{"task_id":"T-1","project":"p"}`,
	}}).Err())
	s.eventually(time.Minute, func() bool {
		owed, err := s.store.Unpublished(t.Context(), 0, 0)
		work, err2 := s.store.Engagement(t.Context(), a)
		return err == nil && err2 == nil && len(owed) == 0 && !work.Ended
	}, "something is still owed")
	require.NotEqual(t, before.Password, s.request(a)["redis"].Password)
}
