package statetest

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/roboco/sandboxd/state"
)

func runFlags(t *testing.T, open Open) {
	s := opened(t, open)
	ctx := background(t)
	yes, no := true, false
	const name = "sandbox_db_enabled"
	get := func(name string) *bool {
		t.Helper()
		f, err := s.Flag(ctx, name)
		require.NoError(t, err)
		return f.Value
	}
	var last int64
	set := func(v *bool) {
		t.Helper()
		f, err := s.SetFlag(ctx, name, v)
		require.NoError(t, err)
		require.Equal(t, v, f.Value)
		require.Greater(t, f.Revision, last, "each change has a later revision than the one before, removals too")
		last = f.Revision
		read, err := s.Flag(ctx, name)
		require.NoError(t, err)
		require.Equal(t, f, read)
	}
	f, err := s.Flag(ctx, name)
	require.NoError(t, err)
	require.Zero(t, f, "never set")
	for _, v := range []*bool{nil, &yes, &no, &no, nil, &yes} {
		set(v)
	}
	*get(name) = false
	require.True(t, *get(name), "what is returned is the caller's")
	require.Nil(t, get("another"))
	set(nil)
	runFlagChanges(t, s)

	for _, name := range nasty() {
		require.Nil(t, get(name))
		_, err := s.SetFlag(ctx, name, &yes)
		require.NoError(t, err)
		require.True(t, *get(name))
	}
	require.Nil(t, get("\x00"))
	for _, name := range []string{"", "\x00", "\xff", strings.Repeat("x", 201)} {
		_, err := s.SetFlag(ctx, name, &yes)
		refused(t, err, "flag")
	}
}

// runFlagChanges: of changes at once the one with the highest revision is the one that stays.
func runFlagChanges(t *testing.T, s state.Store) {
	t.Helper()
	ctx := background(t)
	for round := range 5 {
		name := fmt.Sprint("changed at once ", round)
		changes := make([]state.Flag, 8)
		var g errgroup.Group
		for i := range changes {
			g.Go(func() (err error) {
				v := i%2 == 0
				changes[i], err = s.SetFlag(ctx, name, &v)
				return err
			})
		}
		require.NoError(t, g.Wait())
		newest := slices.MaxFunc(changes, func(a, b state.Flag) int { return cmp.Compare(a.Revision, b.Revision) })
		stays, err := s.Flag(ctx, name)
		require.NoError(t, err)
		require.Equal(t, newest, stays)
	}
}

func requestID() string { return uuid.Must(uuid.NewV7()).String() }

func full(id string) state.Request {
	at := time.Date(2026, 5, 6, 7, 8, 9, 123456000, time.UTC)
	return state.Request{
		ID: id, Agent: "be-dev-1", Role: "developer", Task: "T-1", Project: "shop", Host: "h1", Worker: "w1",
		Services: []string{"redis", "postgres"}, Extensions: map[string][]string{"postgres": {"vector"}, "redis": {}},
		Outcome: "ok", Guard: -1, Message: "",
		Containers: []state.RequestContainer{
			{ID: id + "-pg", Engine: "postgres", Outcome: "created", Task: "T-1", Project: "shop", Owner: "c@1", Born: "1-0", Epoch: "7"},
			{ID: id + "-rd", Engine: "redis", Outcome: "pooled", Task: "T-1", Project: "shop", Owner: "c@1", Born: "1-0", Epoch: "7"},
		},
		AskedAt: at, DoneAt: at.Add(1500 * time.Microsecond),
		Phases: map[string]int64{"guards": 3, "total": math.MaxInt64},
	}
}

func runHistory(t *testing.T, open Open) {
	t.Run("rows", func(t *testing.T) { rows(t, opened(t, open)) })
	t.Run("filters and pages", func(t *testing.T) { pages(t, opened(t, open)) })
	t.Run("claims", func(t *testing.T) { claims(t, opened(t, open)) })
	t.Run("pruning", func(t *testing.T) { pruning(t, opened(t, open)) })
}

func rows(t *testing.T, s state.Store) {
	ctx := background(t)
	list := func() []state.Request {
		t.Helper()
		got, err := s.Requests(ctx, state.HistoryFilter{})
		require.NoError(t, err)
		return got
	}
	require.Empty(t, list())
	require.NoError(t, s.RecordRequests(ctx, nil))

	want := full(requestID())
	require.NoError(t, s.RecordRequests(ctx, []state.Request{want}))
	require.Equal(t, []state.Request{want}, list(), "every field comes back")
	list()[0].Phases["guards"] = 99
	list()[0].Containers[0].ID = "scribbled"
	require.Equal(t, []state.Request{want}, list(), "what is returned is the caller's")

	t.Run("a known ID is replaced", func(t *testing.T) {
		want.Outcome, want.Guard, want.Message = "refused", 4, "not opted in"
		want.Services, want.Extensions, want.Containers, want.Phases = nil, nil, nil, nil
		early := want
		early.Outcome = "late"
		require.NoError(t, s.RecordRequests(ctx, []state.Request{early, want}), "the last of a batch counts")
		require.Equal(t, []state.Request{want}, list())
	})

	t.Run("null and empty", func(t *testing.T) {
		in := full(want.ID)
		in.Services, in.Extensions = []string{}, map[string][]string{}
		in.Containers, in.Phases = []state.RequestContainer{}, map[string]int64{}
		require.NoError(t, s.RecordRequests(ctx, []state.Request{in}))
		got := list()[0]
		require.Equal(t, []string{}, got.Services)
		require.Nil(t, got.Extensions)
		require.Nil(t, got.Containers)
		require.Nil(t, got.Phases)
	})

	t.Run("times", func(t *testing.T) {
		in := full(want.ID)
		in.AskedAt = time.Date(2026, 10, 25, 2, 30, 0, 999_999_999, time.FixedZone("x", -7*3600))
		in.DoneAt = time.Time{}
		require.NoError(t, s.RecordRequests(ctx, []state.Request{in}))
		got := list()[0]
		require.Equal(t, in.AskedAt.UTC().Truncate(time.Microsecond), got.AskedAt)
		require.True(t, got.DoneAt.IsZero(), "not done yet")
		in.AskedAt = time.Time{}
		require.NoError(t, s.RecordRequests(ctx, []state.Request{in}))
		stored(t, list()[0].AskedAt)
	})

	t.Run("texts are data", func(t *testing.T) {
		for _, text := range append(nasty(), strings.Repeat("long ", 20_000)) {
			in := full(want.ID)
			in.Agent, in.Task, in.Project, in.Message, in.Worker = text, text, text, text, text
			in.Services, in.Extensions = []string{text}, map[string][]string{text: {text}}
			in.Containers[0].ID, in.Containers[0].Owner = text, text
			in.Phases = map[string]int64{text: -1}
			require.NoError(t, s.RecordRequests(ctx, []state.Request{in}))
			require.Equal(t, []state.Request{in}, list())
			if len(text) < 100 {
				got, err := s.Requests(ctx, state.HistoryFilter{Agent: text, Task: text, Project: text})
				require.NoError(t, err)
				require.Len(t, got, 1)
			}
		}
	})

	t.Run("what no database can hold does not cost the row", func(t *testing.T) {
		in := full(want.ID)
		in.Message = "log: a\x00b \xff\xfe end"
		in.Services = []string{"\x00"}
		in.Extensions = map[string][]string{"\xff": {"\x00"}}
		in.Containers[0].Owner = "\x00"
		in.Phases = map[string]int64{"\x00": 1}
		require.NoError(t, s.RecordRequests(ctx, []state.Request{in}))
		got := list()[0]
		require.Equal(t, "log: a\uFFFDb \uFFFD end", got.Message)
		require.Equal(t, []string{"\uFFFD"}, got.Services)
		require.Equal(t, map[string][]string{"\uFFFD": {"\uFFFD"}}, got.Extensions)
		require.Equal(t, "\uFFFD", got.Containers[0].Owner)
		require.Equal(t, map[string]int64{"\uFFFD": 1}, got.Phases)
		require.Equal(t, "log: a\x00b \xff\xfe end", in.Message)
		require.Equal(t, "\x00", in.Services[0], "the caller's slice is the caller's")
	})

	t.Run("a row without an ID", func(t *testing.T) {
		before := list()
		refused(t, s.RecordRequests(ctx, []state.Request{full(requestID()), {Agent: "x"}}), "request_id")
		require.Equal(t, before, list(), "all or none")
	})
}

func pages(t *testing.T, s state.Store) {
	ctx := background(t)
	var ids []string
	var batch []state.Request
	for i := range 125 {
		r := full(requestID())
		r.Agent, r.Project = fmt.Sprintf("agent-%d", i%2), fmt.Sprintf("project-%d", i%3)
		r.Task, r.Outcome = fmt.Sprintf("T-%d", i%5), []string{"ok", "refused", "failed", "stale", "late"}[i%5]
		ids, batch = append(ids, r.ID), append(batch, r)
	}
	for i, j := 0, len(batch)-1; i < j; i, j = i+1, j-1 {
		batch[i], batch[j] = batch[j], batch[i] // written in any order, read by ID
	}
	require.NoError(t, s.RecordRequests(ctx, batch[:60]))
	require.NoError(t, s.RecordRequests(ctx, batch[60:]))
	want := func(keep func(i int) bool) (out []string) {
		for i := len(ids) - 1; i >= 0; i-- {
			if keep(i) {
				out = append(out, ids[i])
			}
		}
		return out
	}
	list := func(f state.HistoryFilter) (out []string) {
		t.Helper()
		got, err := s.Requests(ctx, f)
		require.NoError(t, err)
		for _, r := range got {
			out = append(out, r.ID)
		}
		return out
	}
	every := want(func(int) bool { return true })
	require.Equal(t, every[:50], list(state.HistoryFilter{}), "50 where no limit is given")
	require.Equal(t, every, list(state.HistoryFilter{Limit: 500}))
	require.Equal(t, every[:1], list(state.HistoryFilter{Limit: 1}))

	for title, c := range map[string]struct {
		filter state.HistoryFilter
		keep   func(i int) bool
	}{
		"all":     {state.HistoryFilter{}, func(int) bool { return true }},
		"agent":   {state.HistoryFilter{Agent: "agent-1"}, func(i int) bool { return i%2 == 1 }},
		"project": {state.HistoryFilter{Project: "project-2"}, func(i int) bool { return i%3 == 2 }},
		"task":    {state.HistoryFilter{Task: "T-3"}, func(i int) bool { return i%5 == 3 }},
		"outcome": {state.HistoryFilter{Outcome: "refused"}, func(i int) bool { return i%5 == 1 }},
		"several": {state.HistoryFilter{Agent: "agent-0", Project: "project-0"}, func(i int) bool { return i%6 == 0 }},
		"none":    {state.HistoryFilter{Agent: "agent-0", Project: "nowhere"}, func(int) bool { return false }},
	} {
		t.Run(title, func(t *testing.T) {
			for _, limit := range []int{7, 60} {
				var got []string
				f := c.filter
				f.Limit = limit
				for page := list(f); len(page) > 0; page = list(f) {
					require.LessOrEqual(t, len(page), limit)
					got = append(got, page...)
					f.Before = page[len(page)-1]
				}
				require.Equal(t, want(c.keep), got, "limit %d", limit)
			}
		})
	}
	for _, limit := range []int{-1, 501} {
		_, err := s.Requests(ctx, state.HistoryFilter{Limit: limit})
		require.Contains(t, refused(t, err, "limit").Error(), "1 to 500")
	}
	for _, text := range append(nasty(), "\x00", "\xff") {
		require.Empty(t, list(state.HistoryFilter{Agent: text}))
		require.Empty(t, list(state.HistoryFilter{Outcome: text}))
	}
	require.Empty(t, list(state.HistoryFilter{Before: "\x00"}))
}

func pruning(t *testing.T, s state.Store) {
	ctx := background(t)
	cut := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	mk := func(asked, done time.Time) state.Request {
		r := full(requestID())
		r.AskedAt, r.DoneAt = asked, done
		return r
	}
	old, undone := mk(cut.Add(-2*time.Hour), cut.Add(-time.Microsecond)), mk(cut.Add(-time.Hour), time.Time{})
	edge, running := mk(cut.Add(-time.Hour), cut), mk(cut, time.Time{})
	require.NoError(t, s.RecordRequests(ctx, []state.Request{old, undone, edge, running}))
	before, at := claim("before"), claim("at")
	before.ClaimedAt, at.ClaimedAt = cut.Add(-time.Microsecond), cut
	require.NoError(t, s.RecordClaim(ctx, before))
	require.NoError(t, s.RecordClaim(ctx, at))

	n, err := s.PruneRequests(ctx, cut.In(time.FixedZone("x", 3600)))
	require.NoError(t, err)
	require.EqualValues(t, 2, n, "the rows, without the claims")
	left, err := s.Requests(ctx, state.HistoryFilter{})
	require.NoError(t, err)
	require.Equal(t, []state.Request{running, edge}, left)
	n, err = s.PruneRequests(ctx, cut)
	require.NoError(t, err)
	require.Zero(t, n)
	got, err := s.Claims(ctx, []string{"before", "at"})
	require.NoError(t, err)
	require.Equal(t, map[string]state.Claim{"at": at}, got)
}
