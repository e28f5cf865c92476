package statetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/state"
)

// worker follows one agent's engagement through a test.
type worker struct {
	t     *testing.T
	s     state.Store
	agent string
}

func (w worker) start(task, project, status string, owned bool) state.Engagement {
	w.t.Helper()
	err := w.s.StartWork(background(w.t),
		state.Engagement{Agent: w.agent, Task: task, Project: project, Status: status, Owned: owned}, event("work.started"))
	require.NoError(w.t, err)
	return w.now()
}

func (w worker) end(task string) state.Engagement {
	w.t.Helper()
	e, err := w.s.EndWork(background(w.t), w.agent, task, event("work.ended"))
	require.NoError(w.t, err)
	return e
}

func (w worker) now() state.Engagement {
	w.t.Helper()
	e, err := w.s.Engagement(background(w.t), w.agent)
	require.NoError(w.t, err)
	return e
}

func (w worker) owed() int {
	w.t.Helper()
	out, err := w.s.Unpublished(background(w.t), 0, 0)
	require.NoError(w.t, err)
	return len(out)
}

func runWork(t *testing.T, open Open) {
	s := opened(t, open)
	ctx := background(t)
	on := func(t *testing.T, agent string) worker { return worker{t, s, agent} }

	t.Run("an owner that was found out later", func(t *testing.T) {
		w := on(t, "found-out")
		w.start("T-1", "p", "", false)
		for _, other := range [][2]string{{"T-2", "p"}, {"T-1", "q"}, {"\x00", "p"}} {
			require.NoError(t, s.SetOwned(ctx, w.agent, other[0], other[1]))
		}
		require.False(t, w.now().Owned, "another engagement's owner changes nothing")
		require.NoError(t, s.SetOwned(ctx, w.agent, "T-1", "p"))
		require.True(t, w.now().Owned)
		w.end("")
		w.start("T-1", "p", "", false)
		require.False(t, w.now().Owned, "a new engagement starts without")
		w.end("")
		require.NoError(t, s.SetOwned(ctx, w.agent, "T-1", "p"))
		require.False(t, w.now().Owned, "an ended one has none")
	})

	t.Run("none yet", func(t *testing.T) {
		for _, agent := range append(nasty(), "", "nobody", "\x00") {
			_, err := s.Engagement(ctx, agent)
			require.ErrorIs(t, err, state.ErrNotFound, "%q", agent)
		}
		w := on(t, "idler")
		before := w.owed()
		require.Zero(t, w.end(""), "zero when there is none")
		require.Zero(t, w.end("T-1"))
		require.Equal(t, before+2, w.owed(), "the event is owed in any case")
	})

	t.Run("starts and ends", func(t *testing.T) {
		w := on(t, "dev")
		e := w.start("T-1", "shop", "in_progress", false)
		stored(t, e.StartedAt)
		require.Equal(t, state.Engagement{Agent: "dev", Task: "T-1", Project: "shop", Status: "in_progress", StartedAt: e.StartedAt}, e)
		ended := w.end("T-1")
		stored(t, ended.EndedAt)
		e.Ended, e.EndedAt = true, ended.EndedAt
		require.Equal(t, e, ended)
		require.Equal(t, e, w.now())
		require.Equal(t, e, w.end("T-1"), "ending again changes nothing")
		require.Equal(t, e, w.end(""))
	})

	t.Run("the same again is a change of status", func(t *testing.T) {
		w := on(t, "again")
		first := w.start("T-1", "shop", "in_progress", false)
		second := w.start("T-1", "shop", "needs_review", true)
		require.Equal(t, first.StartedAt, second.StartedAt)
		require.Equal(t, "needs_review", second.Status)
		require.True(t, second.Owned)
		third := w.start("T-1", "shop", "in_progress", false)
		require.True(t, third.Owned, "owned stays")
		require.Equal(t, first.StartedAt, third.StartedAt)
	})

	t.Run("another task or project is another engagement", func(t *testing.T) {
		w := on(t, "mover")
		first := w.start("T-1", "shop", "s", true)
		second := w.start("T-2", "shop", "s", false)
		require.Equal(t, "T-2", second.Task)
		require.False(t, second.Owned, "owned goes with the engagement")
		require.False(t, second.StartedAt.Before(first.StartedAt))
		require.Equal(t, "site", w.start("T-2", "site", "s", false).Project)
		require.False(t, w.now().Ended)
	})

	t.Run("the same after its end is another engagement", func(t *testing.T) {
		w := on(t, "back")
		w.start("T-1", "shop", "s", true)
		ended := w.end("")
		e := w.start("T-1", "shop", "s", false)
		require.False(t, e.Ended)
		require.Zero(t, e.EndedAt)
		require.False(t, e.Owned)
		require.False(t, e.StartedAt.Before(ended.EndedAt))
	})

	t.Run("the end of another task is moot", func(t *testing.T) {
		w := on(t, "moot")
		e := w.start("T-2", "shop", "s", false)
		before := w.owed()
		require.Equal(t, e, w.end("T-1"))
		require.Equal(t, e, w.now())
		require.Equal(t, before+1, w.owed(), "its event is owed all the same")
		require.True(t, w.end("").Ended)
	})

	t.Run("agents do not touch each other", func(t *testing.T) {
		a, b := on(t, "twin-a"), on(t, "twin-b")
		a.start("T-1", "shop", "s", false)
		b.start("T-1", "shop", "s", false)
		a.end("")
		require.False(t, b.now().Ended)
	})

	t.Run("a start time that is given", func(t *testing.T) {
		at := time.Date(2026, 3, 29, 2, 30, 0, 123456789, time.FixedZone("somewhere", 5*3600+1800))
		e := state.Engagement{Agent: "timed", Task: "T", Status: "s", StartedAt: at, Ended: true, EndedAt: at}
		require.NoError(t, s.StartWork(ctx, e, event("work.started")))
		got := on(t, "timed").now()
		require.Equal(t, at.UTC().Truncate(time.Microsecond), got.StartedAt)
		require.False(t, got.Ended)
		require.Empty(t, got.Project, "an engagement need not be bound to a project")
	})

	t.Run("texts are data", func(t *testing.T) {
		w := on(t, "texts")
		for _, text := range append(nasty(), strings.Repeat("é", 200)) {
			e := w.start(text, text, text, false)
			require.Equal(t, []string{text, text, text}, []string{e.Task, e.Project, e.Status})
			require.True(t, w.end(text).Ended, "%q", text)
		}
	})

	t.Run("what is refused", func(t *testing.T) { workRefusals(t, s) })
}

func workRefusals(t *testing.T, s state.Store) {
	ctx := background(t)
	good := state.Engagement{Agent: "strict", Task: "T", Project: "p", Status: "s"}
	owed := worker{t, s, "strict"}.owed()
	long := strings.Repeat("x", 201)
	for field, changes := range map[string][]func(*state.Engagement){
		"agent": {func(e *state.Engagement) { e.Agent = "" }, func(e *state.Engagement) { e.Agent = "Not A Slug" }},
		"task": {
			func(e *state.Engagement) { e.Task = "" }, func(e *state.Engagement) { e.Task = long },
			func(e *state.Engagement) { e.Task = "a\x00" }, func(e *state.Engagement) { e.Task = "\xff" },
		},
		"project": {func(e *state.Engagement) { e.Project = long }, func(e *state.Engagement) { e.Project = "\x00" }},
		"status":  {func(e *state.Engagement) { e.Status = long }, func(e *state.Engagement) { e.Status = "\xff" }},
	} {
		for _, change := range changes {
			e := good
			change(&e)
			refused(t, s.StartWork(ctx, e, event("work.started")), field)
		}
	}
	for field, out := range map[string]state.Outgoing{
		"event_id": {Event: []byte(`{}`)},
		"event":    {EventID: "e-1", Event: []byte(`{"a":`)},
	} {
		refused(t, s.StartWork(ctx, good, out), field)
		_, err := s.EndWork(ctx, "strict", "", out)
		refused(t, err, field)
	}
	for _, event := range [][]byte{nil, {}, []byte("\"\xff\""), []byte("\x00")} {
		refused(t, s.StartWork(ctx, good, state.Outgoing{EventID: "e-1", Event: event}), "event")
	}
	_, err := s.EndWork(ctx, "Not A Slug", "", event("work.ended"))
	refused(t, err, "agent")
	_, err = s.EndWork(ctx, "strict", "\x00", event("work.ended"))
	refused(t, err, "task")
	_, err = s.Engagement(ctx, "strict")
	require.ErrorIs(t, err, state.ErrNotFound, "nothing was stored")
	require.Equal(t, owed, worker{t, s, "strict"}.owed(), "and nothing is owed")
}

func runOwed(t *testing.T, open Open) {
	s := opened(t, open)
	ctx := background(t)
	w := worker{t, s, "dev"}
	start := func(task string, out state.Outgoing) {
		t.Helper()
		require.NoError(t, s.StartWork(ctx, state.Engagement{Agent: "dev", Task: task, Project: "p", Status: "s"}, out))
	}
	owed := func(age time.Duration, limit int) (ids []string) {
		t.Helper()
		out, err := s.Unpublished(ctx, age, limit)
		require.NoError(t, err)
		for _, o := range out {
			ids = append(ids, o.EventID)
		}
		return ids
	}
	require.Empty(t, owed(0, 10))

	first, second, third := event("work.started"), event("work.started"), event("work.ended")
	first.Event = []byte("{ \"z\":1, \"a\": \"\\u0000 \\ud800 <&>\", \"a\":2 }\n")
	start("T-1", first)
	start("T-2", second)
	_, err := s.EndWork(ctx, "dev", "", third)
	require.NoError(t, err)
	require.Equal(t, []string{first.EventID, second.EventID, third.EventID}, owed(0, 10), "oldest first")
	require.Equal(t, []string{first.EventID, second.EventID}, owed(0, 2))
	require.Len(t, owed(0, 0), 3, "no limit given")
	require.Empty(t, owed(time.Hour, 10), "too young")
	out, err := s.Unpublished(ctx, 0, 1)
	require.NoError(t, err)
	require.Equal(t, first.Event, out[0].Event, "byte for byte")

	t.Run("a known event changes nothing", func(t *testing.T) {
		before := w.now()
		start("T-9", first)
		require.Equal(t, before, w.now())
		e, err := s.EndWork(ctx, "dev", "", second)
		require.NoError(t, err)
		require.Equal(t, before, e, "and the engagement is returned as it stands")
		now := w.start("T-3", "p", "s", false)
		e, err = s.EndWork(ctx, "dev", "", third)
		require.NoError(t, err)
		require.Equal(t, now, e, "a late repetition of the end of T-2 does not end T-3")
		changed := first
		changed.Event = []byte(`{"other":true}`)
		start("T-9", changed)
		out, err := s.Unpublished(ctx, 0, 1)
		require.NoError(t, err)
		require.Equal(t, first.Event, out[0].Event)
		e, err = s.EndWork(ctx, "stranger", "", first)
		require.NoError(t, err)
		require.Zero(t, e)
	})

	t.Run("in an agent's order", func(t *testing.T) {
		other := worker{t, s, "other"}
		other.start("T-1", "p", "s", false)
		mine := owed(0, 100)
		before := func(id string) (ids []string) {
			out, err := s.OwedBefore(ctx, id)
			require.NoError(t, err)
			for _, o := range out {
				ids = append(ids, o.EventID)
			}
			return ids
		}
		require.Empty(t, before(first.EventID))
		require.Equal(t, []string{first.EventID, second.EventID}, before(third.EventID), "oldest first, and nobody else's")
		require.Empty(t, before(mine[len(mine)-1]), "the other agent's first")
		for _, id := range append(nasty(), "", "\x00") {
			require.Empty(t, before(id), "unknown")
		}
		last := event("work.ended")
		_, err := s.EndWork(ctx, "third", "", event("work.ended"))
		require.NoError(t, err)
		_, err = s.EndWork(ctx, "third", "", last)
		require.NoError(t, err)
		all := owed(0, 100)
		require.NoError(t, s.Published(ctx, last.EventID))
		require.Equal(t, all[:len(all)-2], owed(0, 100), "what the agent was owed before is settled with it, and nobody else's")
		require.Empty(t, before(last.EventID))
	})

	t.Run("published", func(t *testing.T) {
		n := len(owed(0, 100))
		require.NoError(t, s.Published(ctx, first.EventID))
		require.NoError(t, s.Published(ctx, first.EventID), "again")
		for _, id := range append(nasty(), "", "\x00") {
			require.NoError(t, s.Published(ctx, id), "unknown")
		}
		require.Len(t, owed(0, 100), n-1)
		require.NotContains(t, owed(0, 100), first.EventID)
		before := w.now()
		again := func() {
			err := s.StartWork(ctx, state.Engagement{Agent: "dev", Task: "T-9", Project: "p"}, first)
			require.ErrorIs(t, err, state.ErrPublished)
			_, err = s.EndWork(ctx, "dev", "", first)
			require.ErrorIs(t, err, state.ErrPublished)
		}
		again()
		require.Equal(t, before, w.now(), "a published one is still known")
		_, err := s.PruneRequests(ctx, time.Now().Add(time.Hour))
		require.NoError(t, err)
		again()
		require.Equal(t, before, w.now(), "and pruning does not forget it so soon")
		require.Contains(t, owed(0, 100), second.EventID, "nor does it drop what is owed")
	})

	t.Run("many", func(t *testing.T) {
		n := len(owed(0, 1000))
		for i := range 120 {
			w.start(fmt.Sprintf("M-%d", i), "p", "s", false)
		}
		all := owed(0, 1000)
		require.Len(t, all, n+120)
		require.Equal(t, all[:50], owed(0, 50))
	})
}
