package workertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/roboco/sandboxd/engines"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// labelsOf is what a worker puts on a container.
func labelsOf(l Life, cell string) map[string]string {
	return map[string]string{
		labelOurs: "1", labelOwner: agentPrefix + l.Agent, labelCell: cell, labelEngine: l.Engine, labelEpoch: l.Epoch,
		labelBorn: l.Born, labelProject: l.Project, labelTask: l.Task, labelOwnerID: l.Owner,
	}
}

func newSim(t *testing.T) *Sim {
	t.Helper()
	s := NewSim(SimConfig{Seed: 1, Jitter: time.Microsecond})
	t.Cleanup(s.Close)
	return s
}

// launch is a container of an agent's engine as a worker would create it.
func launch(e engines.Engine, name string, features []string) engines.Launch {
	l := engines.Launch{Name: name, Labels: labelsOf(Life{Agent: "a", Engine: e.Name, Born: "1-0", Epoch: "1", Owner: "lease"}, cell)}
	l.Spec = e.Describe(engines.Order{Image: e.Image(features), Features: features, Password: "pw-" + name, AdminPassword: "admin-" + name})
	return l
}

// eventually polls until f is nil.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) { require.NoError(c, f()) }, 10*time.Second, time.Millisecond)
}

func TestSimNamesAreUnique(t *testing.T) {
	t.Parallel()
	s, ctx := newSim(t), t.Context()
	mongo, _ := Engines(s).Lookup("mongo")
	one, err := s.Create(ctx, launch(mongo, "x", nil))
	require.NoError(t, err)
	require.Len(t, one, 64)
	_, err = s.Create(ctx, launch(mongo, "x", nil))
	require.ErrorIs(t, err, engines.ErrNameTaken)
	two, err := s.Create(ctx, launch(mongo, "y", nil))
	require.NoError(t, err)
	require.ErrorIs(t, s.Rename(ctx, two, "x"), engines.ErrNameTaken)
	require.NoError(t, s.Rename(ctx, one, "z"))
	require.NoError(t, s.Rename(ctx, two, "x"))
	c, err := s.Inspect(ctx, "x")
	require.NoError(t, err)
	require.Equal(t, two, c.ID)
	require.ErrorIs(t, s.Start(ctx, "none"), engines.ErrNotFound)
}

func TestSimLives(t *testing.T) {
	t.Parallel()
	s, ctx := newSim(t), t.Context()
	mongo, _ := Engines(s).Lookup("mongo")
	id, err := s.Create(ctx, launch(mongo, "x", nil))
	require.NoError(t, err)
	require.NoError(t, s.Start(ctx, id))
	first, err := s.Inspect(ctx, id)
	require.NoError(t, err)
	require.True(t, first.Running && first.FirstLife)

	require.True(t, s.Kill(id, Restarts))
	second, err := s.Inspect(ctx, id)
	require.NoError(t, err)
	require.True(t, second.Running)
	require.False(t, second.FirstLife)
	require.Greater(t, second.StartedAt, first.StartedAt)

	require.True(t, s.Kill(id, Exits))
	code, err := s.WaitExit(ctx, id)
	require.NoError(t, err)
	require.Equal(t, 1, code)
	require.False(t, s.Kill(id, Exits), "it is dead already")
	require.NoError(t, s.Remove(ctx, id, 0))
	require.NoError(t, s.Remove(ctx, id, 0), "it is gone already")
	_, err = s.Inspect(ctx, id)
	require.ErrorIs(t, err, engines.ErrNotFound)

	l := s.Truth().Lives[id]
	require.NotZero(t, l.Died)
	require.Equal(t, l.Died, l.Gone())
	require.GreaterOrEqual(t, l.Removed, l.Died)
	require.True(t, s.OwnedBy("pw-x", "a"))
	require.False(t, s.OwnedBy("pw-x", "b"))
}

func TestSimServers(t *testing.T) {
	t.Parallel()
	s, ctx := newSim(t), t.Context()
	pg, _ := Engines(s).Lookup("postgres")
	id, err := s.Create(ctx, launch(pg, "x", []string{"vector"}))
	require.NoError(t, err)
	c, err := s.Inspect(ctx, id)
	require.NoError(t, err)
	a := engines.Access{Addr: c.Addrs[0], Password: "pw-x", AdminPassword: "admin-x"}
	require.Error(t, pg.Up(ctx, a), "it does not run")
	require.NoError(t, s.Start(ctx, id))
	eventually(t, func() error { return pg.Up(ctx, a) })
	require.Error(t, pg.Up(ctx, engines.Access{Addr: a.Addr, Password: "pw-x", AdminPassword: "pw-x"}), "the agent is not the administrator")
	require.Error(t, pg.Probe(ctx, a), "the agent's role is not there yet")
	require.Error(t, pg.Verify(ctx, a, []string{"vector"}))
	require.NoError(t, pg.Activate(ctx, a, []string{"vector"}))
	require.NoError(t, pg.Verify(ctx, a, []string{"vector"}))
	require.NoError(t, pg.Probe(ctx, a))
	require.Error(t, pg.Probe(ctx, engines.Access{Addr: a.Addr, Password: "wrong"}))

	s.Kill(id, Restarts) // the tmpfs is empty now
	eventually(t, func() error { return pg.Up(ctx, a) })
	require.Error(t, pg.Probe(ctx, a))
	require.Error(t, pg.Verify(ctx, a, []string{"vector"}))

	bare, err := s.Create(ctx, launch(pg, "y", nil))
	require.NoError(t, err)
	require.NoError(t, s.Start(ctx, bare))
	b := engines.Access{Addr: addrOf(bare), Password: "pw-y", AdminPassword: "admin-y"}
	eventually(t, func() error { return pg.Up(ctx, b) })
	require.ErrorIs(t, pg.Activate(ctx, b, []string{"vector"}), errMissing, "the files are not in the bare image")
}

func TestSimAgents(t *testing.T) {
	t.Parallel()
	s, ctx := newSim(t), t.Context()
	one := s.AgentUp("a")
	c, err := s.Inspect(ctx, "roboco-agent-a")
	require.NoError(t, err)
	require.Equal(t, one, c.Owner())
	require.Empty(t, c.Labels[labelOurs])
	require.ErrorIs(t, s.Remove(ctx, c.ID, 0), engines.ErrForeign)

	require.Equal(t, one, s.AgentDown("a", false))
	require.Empty(t, s.AgentOwner("a"))
	again := s.AgentAgain("a")
	require.Equal(t, one[:64], again[:64])
	require.NotEqual(t, one, again)
	other := s.AgentUp("a")
	require.NotEqual(t, again[:64], other[:64])
	t1 := s.Truth()
	require.True(t, t1.OwnerDown(one, micros()))
	require.False(t, t1.OwnerDown(other, micros()))
	require.False(t, t1.OwnerDown("lease", micros()))
	require.Less(t, t1.Owners[again].Seq, t1.Owners[other].Seq)
	listed, err := s.ListNamed(ctx, "roboco-agent-")
	require.NoError(t, err)
	require.Len(t, listed, 1)
	require.Empty(t, listed[0].StartedAt, "a listing does not tell")
}

func TestSimEvents(t *testing.T) {
	t.Parallel()
	s := newSim(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen, connected, over := make(chan engines.Event, 8), make(chan struct{}), make(chan error, 1)
	go func() {
		over <- s.Events(ctx, func() { close(connected) }, func(d engines.Event) { seen <- d })
	}()
	<-connected
	told := func(name string, actions ...engines.Action) {
		for _, a := range actions {
			e := <-seen
			require.Equal(t, name, e.Name)
			require.Equal(t, a, e.Action)
		}
	}
	s.AgentUp("a")
	s.AgentDown("a", true)
	told("roboco-agent-a", engines.Started, engines.Died, engines.Destroyed)
	s.SetPaused(true)
	s.AgentUp("b")
	s.AgentDown("b", false)
	s.SetPaused(false)
	told("roboco-agent-b", engines.Started, engines.Died)
	id := s.Stranger("c")
	require.NoError(t, s.Rename(ctx, id, "d"))
	require.True(t, s.Pause(id, true))
	require.True(t, s.Pause(id, false))
	require.True(t, s.Kill(id, Restarts))
	told("c", engines.Started)
	told("d", engines.Renamed, engines.Paused, engines.Unpaused, engines.Died, engines.Started)
	s.BreakFeeds()
	require.ErrorIs(t, <-over, engines.ErrUnavailable)
}

func TestSimFaults(t *testing.T) {
	t.Parallel()
	s, ctx := newSim(t), t.Context()
	mongo, _ := Engines(s).Lookup("mongo")
	s.SetDown(true)
	before, after := 0, 0
	for before == 0 || after == 0 { // of each kind at least one
		n := len(s.Containers())
		_, err := s.Create(ctx, launch(mongo, time.Now().String(), nil))
		require.ErrorIs(t, err, engines.ErrUnavailable)
		if len(s.Containers()) > n {
			after++
		} else {
			before++
		}
	}
	s.SetDown(false)
	require.NoError(t, s.Ping(ctx))

	s.SetPaused(true)
	short, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
	defer cancel()
	err := s.Ping(short)
	require.ErrorIs(t, err, engines.ErrUnavailable)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	s.SetPaused(false)
	require.NoError(t, s.Ping(ctx))

	s.SetOdds(0, 1, 1)
	var told []engines.PullProgress
	err = s.EnsureImage(ctx, "x", func(p engines.PullProgress) { told = append(told, p) })
	var pull *engines.PullError
	require.True(t, errors.As(err, &pull) && pull.Retryable)
	require.NotEmpty(t, told)
	s.SetOdds(0, 1, 0)
	require.NoError(t, s.EnsureImage(ctx, "x", nil))
}

func TestSimIsDeterministic(t *testing.T) {
	t.Parallel()
	run := func() (ids []string) {
		s := NewSim(SimConfig{Seed: 7})
		defer s.Close()
		for _, a := range []string{"a", "b", "c"} {
			ids = append(ids, s.AgentUp(a)[:64])
		}
		return ids
	}
	require.Equal(t, run(), run())
	d, e := NewDice(7, 2), NewDice(7, 2)
	for range 100 {
		require.Equal(t, d.UpTo(time.Second), e.UpTo(time.Second))
	}
}

func TestSimStrangers(t *testing.T) {
	t.Parallel()
	s, ctx := newSim(t), t.Context()
	id := s.Stranger("roboco-sandbox-pg-a")
	require.ErrorIs(t, s.Remove(ctx, id, 0), engines.ErrForeign)
	ours, err := s.List(ctx, map[string]string{labelOurs: "1"})
	require.NoError(t, err)
	require.Empty(t, ours)
	require.False(t, s.KillOne(NewDice(1, 1)), "strangers are not killed")
}
