package statetest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/roboco/sandboxd/state"
)

const atOnce = 16

// together runs fn in many goroutines that start at one signal, and fails on the first error.
func together(t *testing.T, fn func(i int) error) {
	t.Helper()
	var g errgroup.Group
	start := make(chan struct{})
	for i := range atOnce {
		g.Go(func() error {
			<-start
			return fn(i)
		})
	}
	close(start)
	require.NoError(t, g.Wait())
}

func runAtOnce(t *testing.T, open Open) {
	s := opened(t, open)
	ctx := background(t)

	t.Run("one makes a project", func(t *testing.T) {
		var made atomic.Int32
		together(t, func(int) error {
			_, created, err := s.PutProject(ctx, state.Project{Slug: "p", Services: []string{"redis"}})
			if created {
				made.Add(1)
			}
			return err
		})
		require.EqualValues(t, 1, made.Load())
	})

	t.Run("patches of different fields do not undo each other", func(t *testing.T) {
		together(t, func(i int) error {
			name := "patched"
			patch := state.ProjectPatch{Name: &name}
			switch i % 3 {
			case 1:
				patch = state.ProjectPatch{SetServices: true, Services: []string{"mongo"}}
			case 2:
				patch = state.ProjectPatch{SetExtensions: true, Extensions: map[string][]string{"redis": {"json"}}}
			}
			_, err := s.PatchProject(ctx, "p", patch)
			return err
		})
		p, err := s.Project(ctx, "p")
		require.NoError(t, err)
		require.Equal(t, "patched", p.Name)
		require.Equal(t, []string{"mongo"}, p.Services)
		require.Equal(t, map[string][]string{"redis": {"json"}}, p.Extensions)
	})

	t.Run("one makes an agent", func(t *testing.T) {
		var made, taken atomic.Int32
		together(t, func(i int) error {
			_, err := s.CreateAgent(ctx, "a", "qa", sum(fmt.Sprint(i)))
			switch {
			case err == nil:
				made.Add(1)
			case errors.Is(err, state.ErrTaken):
				taken.Add(1)
			default:
				return err
			}
			return nil
		})
		require.EqualValues(t, 1, made.Load())
		require.EqualValues(t, atOnce-1, taken.Load())
	})

	t.Run("one event, told many times", func(t *testing.T) {
		out := event("work.started")
		together(t, func(i int) error {
			return s.StartWork(ctx, state.Engagement{Agent: "told", Task: fmt.Sprint("T-", i), Status: "s"}, out)
		})
		owed, err := s.Unpublished(ctx, 0, 0)
		require.NoError(t, err)
		require.Len(t, owed, 1)
		end := event("work.ended")
		together(t, func(int) error {
			_, err := s.EndWork(ctx, "told", "", end)
			return err
		})
		owed, err = s.Unpublished(ctx, 0, 0)
		require.NoError(t, err)
		require.Len(t, owed, 2)
	})

	t.Run("starts and ends of one agent", func(t *testing.T) { startsAndEnds(t, s) })

	t.Run("histories that overlap", func(t *testing.T) {
		ids := make([]string, 20)
		for i := range ids {
			ids[i] = requestID()
		}
		together(t, func(i int) error {
			batch := make([]state.Request, 0, len(ids))
			for j := range ids {
				r := full(ids[(i*7+j)%len(ids)])
				r.Worker = fmt.Sprint(i)
				batch = append(batch, r)
			}
			return s.RecordRequests(ctx, batch)
		})
		got, err := s.Requests(ctx, state.HistoryFilter{})
		require.NoError(t, err)
		require.Len(t, got, len(ids))
		for _, r := range got {
			require.Equal(t, got[0].Worker, r.Worker, "a batch is all or none")
		}
	})
}

// startsAndEnds mixes starts of one engagement with its ends: whoever comes first, one is whole and nothing is lost.
func startsAndEnds(t *testing.T, s state.Store) {
	ctx := background(t)
	w := worker{t, s, "busy"}
	w.start("T-0", "p", "s", true)
	before := w.owed()
	together(t, func(i int) error {
		if i%4 == 3 {
			_, err := s.EndWork(ctx, "busy", "T-0", event("work.ended"))
			return err
		}
		e := state.Engagement{Agent: "busy", Task: "T-1", Project: "p", Status: fmt.Sprint(i), Owned: i%4 == 0}
		return s.StartWork(ctx, e, event("work.started"))
	})
	require.Equal(t, before+atOnce, w.owed(), "every event is owed")
	e := w.now()
	require.Equal(t, "T-1", e.Task)
	require.False(t, e.Ended, "the ends named another task")
	require.True(t, e.Owned, "one of the starts owned it")
}

func runContexts(t *testing.T, open Open) {
	s := opened(t, open)
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	late, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	for title, call := range Calls(s) {
		t.Run(title, func(t *testing.T) {
			err := call(cancelled)
			require.ErrorIs(t, err, context.Canceled)
			require.NotErrorIs(t, err, state.ErrUnavailable, "a cancelled call says nothing about the store")
			err = call(late)
			require.ErrorIs(t, err, state.ErrUnavailable)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		})
	}
	require.NoError(t, s.Ping(background(t)))
	s.Close()
	for title, call := range Calls(s) {
		require.ErrorIs(t, call(background(t)), state.ErrUnavailable, "%s of a closed store", title)
	}
}

// Calls is one good call of every method, for tests of a store that cannot answer.
func Calls(s state.Store) map[string]func(context.Context) error {
	e := state.Engagement{Agent: "a", Task: "T", Status: "s"}
	return map[string]func(context.Context) error{
		"Ping":           s.Ping,
		"Projects":       func(ctx context.Context) error { _, err := s.Projects(ctx); return err },
		"Project":        func(ctx context.Context) error { _, err := s.Project(ctx, "p"); return err },
		"PutProject":     func(ctx context.Context) error { _, _, err := s.PutProject(ctx, state.Project{Slug: "p"}); return err },
		"PatchProject":   func(ctx context.Context) error { _, err := s.PatchProject(ctx, "p", state.ProjectPatch{}); return err },
		"DeleteProject":  func(ctx context.Context) error { return s.DeleteProject(ctx, "p") },
		"Agents":         func(ctx context.Context) error { _, err := s.Agents(ctx); return err },
		"Agent":          func(ctx context.Context) error { _, err := s.Agent(ctx, "a"); return err },
		"CreateAgent":    func(ctx context.Context) error { _, err := s.CreateAgent(ctx, "a", "qa", sum("a")); return err },
		"SetToken":       func(ctx context.Context) error { _, err := s.SetToken(ctx, "a", sum("a")); return err },
		"RevokeAgent":    func(ctx context.Context) error { return s.RevokeAgent(ctx, "a") },
		"AgentByToken":   func(ctx context.Context) error { _, err := s.AgentByToken(ctx, sum("a")); return err },
		"StartWork":      func(ctx context.Context) error { return s.StartWork(ctx, e, event("work.started")) },
		"EndWork":        func(ctx context.Context) error { _, err := s.EndWork(ctx, "a", "", event("work.ended")); return err },
		"Engagement":     func(ctx context.Context) error { _, err := s.Engagement(ctx, "a"); return err },
		"SetOwned":       func(ctx context.Context) error { return s.SetOwned(ctx, "a", "T", "p") },
		"Published":      func(ctx context.Context) error { return s.Published(ctx, "e") },
		"Unpublished":    func(ctx context.Context) error { _, err := s.Unpublished(ctx, 0, 1); return err },
		"Flag":           func(ctx context.Context) error { _, err := s.Flag(ctx, "f"); return err },
		"SetFlag":        func(ctx context.Context) error { _, err := s.SetFlag(ctx, "f", nil); return err },
		"RecordRequests": func(ctx context.Context) error { return s.RecordRequests(ctx, []state.Request{full(requestID())}) },
		"Requests":       func(ctx context.Context) error { _, err := s.Requests(ctx, state.HistoryFilter{}); return err },
		"RecordClaim":    func(ctx context.Context) error { return s.RecordClaim(ctx, claim("c")) },
		"Claims":         func(ctx context.Context) error { _, err := s.Claims(ctx, []string{"c"}); return err },
		"PruneRequests":  func(ctx context.Context) error { _, err := s.PruneRequests(ctx, time.Now()); return err },
	}
}
