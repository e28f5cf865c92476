package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/worker/workertest"
)

// Schedules: what goes wrong only when two things meet is made to meet. Each of these caught a protocol that was broken on
// purpose (make mutants).

var errCut = errors.New("cut off")

// A hit looks at the engine; what is dead is replaced, and nothing else.
func TestHitLooks(t *testing.T) {
	t.Parallel()
	for _, how := range []workertest.Ending{workertest.Exits, workertest.Restarts, workertest.Vanishes} {
		s := newStage(t)
		s.with(nil)
		a := s.slug("a")
		s.project("p", []string{"postgres", "redis", "mongo"}, nil)
		s.start(a, "T-1", "p")
		first := s.request(a)
		require.True(t, s.sim.Kill(s.box(a, "redis").ID, how))
		second := s.request(a)
		require.NotEqual(t, first["redis"].Password, second["redis"].Password)
		require.Equal(t, events.Replaced, second["redis"].outcome)
		for _, engine := range []string{"postgres", "mongo"} {
			require.Equal(t, first[engine].Password, second[engine].Password, engine)
			require.Equal(t, events.Reused, second[engine].outcome, engine)
		}
		require.Len(t, s.boxes(a), 3)
	}
}

// What the engine does not say is unknown: the sandbox lives on.
func TestUnknownKillsNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	c := &cues{}
	_, stop := s.with(nil)
	a := s.slug("a")
	owner := s.sim.AgentUp(a)
	s.project("p", []string{"redis"}, nil)
	s.start(a, "T-1", "p")
	first := s.request(a)
	stop()
	c.always("before feed", func(string) error { return errCut }) // no look serves twice
	s.with(c)
	s.request(a)
	s.request(a) // by now the observer and the janitor have had their first look
	lost := func(string) error { return engines.ErrUnavailable }
	for _, step := range []string{"before inspect", "before look"} {
		c.on("after switch", func(string) error { c.always(step, lost); return nil })
		refusal := s.refused(s.ask(a, nil, nil)(), 8)
		require.True(t, refusal.Retryable, step)
		c.no(step)
		require.Equal(t, first["redis"].Password, s.request(a)["redis"].Password, step)
	}
	require.Equal(t, owner, s.box(a, "redis").Labels["roboco.sandbox.owner-id"])
	for _, step := range []string{"before list", "before list agents", "before look"} {
		require.Error(t, s.pass((&cues{}).on(step, lost)), step)
		require.Equal(t, first["redis"].Password, s.request(a)["redis"].Password, step)
	}
}

// The container of a run that died is taken over by the next, not by another owner's.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	a := s.slug("a")
	s.project("p", []string{"redis"}, nil)
	s.sim.AgentUp(a)
	s.start(a, "T-1", "p")
	c := (&cues{}).on("before record", func(string) error { return errCut })
	_, stop := s.with(c)
	wait := s.ask(a, nil, nil)
	s.eventually(time.Minute, c.met, "nothing was recorded")
	left := s.box(a, "redis")
	require.Equal(t, left.Env[engines.EnvPassword], s.granted(wait())["redis"].Password, "taken over")
	stop()

	// Once more, and the owner changes before the run goes on. Whatever the former owner's stop would remove stays until the next
	// run has come upon it.
	s.end(a)
	c = &cues{}
	var before []engines.Container
	c.on("before record", func(string) error {
		before = s.boxes(a)
		s.sim.AgentUp(a)
		c.always("before revoke", func(string) error { return errCut })
		c.always("after inspect", func(idOrName string) error {
			if idOrName == "roboco-sandbox-redis-"+a {
				c.no("before revoke")
				c.no("after inspect")
			}
			return nil
		})
		return errCut
	})
	s.with(c)
	s.start(a, "T-2", "p")
	first := s.granted(s.ask(a, nil, nil)())["redis"].Password
	require.True(t, c.met(), "no run came upon the container")
	require.NotEmpty(t, before)
	now := s.request(a)["redis"].Password // what was wrongly taken over may be gone by then
	for _, b := range before {
		require.NotEqual(t, b.Env[engines.EnvPassword], first, "the former owner's")
		require.NotEqual(t, b.Env[engines.EnvPassword], now, "the former owner's")
	}
	require.Equal(t, s.sim.AgentOwner(a), s.box(a, "redis").Labels["roboco.sandbox.owner-id"])
}

// A run that was fenced removes what it made, but not what another run has recorded since.
func TestFencedRunSparesWhatAnotherRecorded(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	a := s.atWork("redis")
	var got map[string]got
	c := &cues{}
	c.on("before record", func(string) error {
		// The lease lapses while this worker hangs; another one takes the container over.
		s.freeze(a)
		s.with(nil)
		got = s.request(a)
		return nil
	})
	s.with(c)
	wait := s.ask(a, nil, nil)
	require.Equal(t, events.StateOK, wait().State)
	s.eventually(time.Minute, c.met, "no cue")
	s.quiet()
	require.Equal(t, got["redis"].Password, s.request(a)["redis"].Password)
	require.Equal(t, got["redis"].Password, s.box(a, "redis").Env[engines.EnvPassword])
}

// freeze takes the lease away, as a stop of its holder would; the holder's beats find it gone.
func (s *stage) freeze(slug string) {
	s.t.Helper()
	require.NoError(s.t, s.rdb.HDel(context.Background(), "{"+s.bcfg.Cell+"}:agent:"+slug, "lease", "until").Err())
}

// A removal goes by ID: what has taken the name meanwhile is another's.
func TestRemovalGoesByID(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	a := s.atWork("redis")
	c := &cues{}
	s.with(c)
	first := s.request(a)
	var second map[string]got
	c.on("before remove", func(string) error {
		s.with(nil)
		s.start(a, "T-2", "p")
		second = s.request(a)
		return nil
	})
	s.end(a)
	s.eventually(time.Minute, c.met, "nothing was removed")
	s.quiet()
	require.NotEqual(t, first["redis"].Password, second["redis"].Password)
	require.Equal(t, second["redis"].Password, s.box(a, "redis").Env[engines.EnvPassword])
	require.Equal(t, second["redis"].Password, s.request(a)["redis"].Password)
}

// A verdict that has grown old is asked for again: a flush wiped it out, and the container was adopted.
func TestOldVerdict(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	a := s.atWork("redis")
	_, stop := s.with(nil)
	first := s.request(a)
	stop()
	// The record lapses, so that the janitor finds the container dead; before it removes it, Redis forgets everything.
	require.NoError(t, s.rdb.Del(t.Context(), "{"+s.bcfg.Cell+"}:record:"+a).Err())
	c := (&cues{}).on("after revoke", func(string) error {
		require.NoError(t, s.rdb.FlushAll(context.Background()).Err())
		require.NoError(t, s.pass(nil))
		time.Sleep(700 * time.Millisecond) // older than a verdict may be
		return nil
	})
	require.NoError(t, s.pass(c))
	require.True(t, c.met())
	s.with(nil)
	require.Equal(t, first["redis"].Password, s.request(a)["redis"].Password)
}

// An observer reads the hash before it looks at the engine: the stop of a former owner never hits the next one.
func TestObserverReadsFirst(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	a := s.agentAtWork()
	s.with(nil)
	s.request(a)
	var second map[string]got
	c := (&cues{}).on("after look", func(string) error {
		s.sim.AgentUp(a)
		second = s.request(a)
		return nil
	})
	_ = s.pass(c)
	require.True(t, c.met())
	s.quiet() // a stop that was wrongly told is carried out before anybody can take over what it ends
	require.Equal(t, second["redis"].Password, s.box(a, "redis").Env[engines.EnvPassword])
	require.Equal(t, second["redis"].Password, s.request(a)["redis"].Password)
}

// Guards read the hash before they look: a look that was slow does not end the sandbox of who came since, nor does one that was
// made before the hash was read.
func TestGuardsReadFirst(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"before the hash is read", "after the look"} {
		s := newStage(t)
		a := s.agentAtWork()
		c := &cues{}
		s.with(c)
		s.request(a)
		s.request(a) // by now the observer and the janitor have had their first look
		var second map[string]got
		another := func(string) error {
			s.sim.AgentUp(a)
			s.with(nil)
			second = s.request(a)
			return nil
		}
		if when == "after the look" {
			c.on("after switch", func(string) error { c.on("after look", another); return nil })
		} else {
			c.on("before switch", another)
		}
		wait := s.ask(a, nil, nil)
		last := s.granted(wait())
		require.True(t, c.met())
		require.Equal(t, second["redis"].Password, last["redis"].Password, "the old look was made anew, where it came %s", when)
		require.Equal(t, second["redis"].Password, s.box(a, "redis").Env[engines.EnvPassword])
	}
}

// After a flush the sandbox of a live owner is adopted; another owner's, and one that began anew, are not.
func TestAdoption(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.project("p", []string{"redis"}, nil)
	lives, left, restarted := s.slug("lives"), s.slug("left"), s.slug("restarted")
	_, stop := s.with(nil)
	granted := map[string]string{}
	for _, a := range []string{lives, left, restarted} {
		s.sim.AgentUp(a)
		s.start(a, "T-1", "p")
		granted[a] = s.request(a)["redis"].Password
	}
	stop()
	require.NoError(t, s.rdb.FlushAll(t.Context()).Err())
	s.sim.AgentUp(left) // another owner of the same name
	require.True(t, s.sim.Kill(s.box(restarted, "redis").ID, workertest.Restarts))
	require.NoError(t, s.pass(nil))
	require.Equal(t, granted[lives], s.box(lives, "redis").Env[engines.EnvPassword])
	require.Empty(t, s.boxes(left))
	require.Empty(t, s.boxes(restarted))
	record, err := s.bus.Sandbox(t.Context(), lives, false)
	require.NoError(t, err)
	require.Contains(t, record.Engines, "redis", "adopted without being asked for")
	s.with(nil)
	require.Equal(t, granted[lives], s.request(lives)["redis"].Password)
}

// Whoever lived in a container and has gone does not come back as a lease.
func TestOwnedByItsContainer(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.with(nil)
	s.project("p", []string{"redis"}, nil)
	a := s.slug("a")
	s.sim.AgentUp(a)
	s.start(a, "T-1", "p")
	s.quiet() // the start was read while the container lived
	s.sim.AgentDown(a, true)
	s.refused(s.ask(a, nil, nil)(), 2)
	require.Empty(t, s.boxes(a))
}

// An earlier call's features never disappear, in place or by replacement.
func TestFeaturesStay(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.with(nil)
	s.project("p", []string{"postgres", "redis"}, nil)
	a := s.slug("a")
	s.start(a, "T-1", "p")
	for _, step := range []struct {
		wanted           map[string][]string
		postgres, module []string
	}{
		{map[string][]string{"postgres": {"vector"}, "redis": {"json"}}, []string{"vector"}, []string{"json"}},
		{map[string][]string{"postgres": {"citext"}}, []string{"citext", "vector"}, []string{"json"}},
		{map[string][]string{"redis": {"bloom"}}, []string{"citext", "vector"}, []string{"bloom", "json"}},
		{nil, []string{"citext", "vector"}, []string{"bloom", "json"}},
	} {
		got := s.granted(s.ask(a, nil, step.wanted)())
		require.Equal(t, step.postgres, got["postgres"].features)
		require.Equal(t, step.module, got["redis"].features)
	}
	s.quiet()
	require.Len(t, s.boxes(a), 2)
}

// What dies between its proof and its record is not handed out.
func TestDeathBeforeTheRecord(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.project("p", []string{"mongo"}, nil)
	a := s.slug("a")
	s.start(a, "T-1", "p")
	c := &cues{}
	var id string
	c.on("after start", func(made string) error { id = made; return nil })
	c.on("before inspect", func(string) error { return nil }) // of the free name
	c.on("before inspect", func(string) error { return nil }) // of the new container, for its address
	c.on("before inspect", func(string) error {
		require.True(t, s.sim.Kill(id, workertest.Restarts))
		return nil
	})
	s.with(c)
	s.refused(s.ask(a, nil, nil)(), 8)
	require.True(t, c.met())
	s.empty(a)
}

// The janitor leaves alone what is young, and removes it when it is not, if nobody knows it.
func TestGrace(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	a := s.atWork("redis")
	c := (&cues{}).on("before record", func(string) error { return errCut })
	_, stop := s.with(c)
	s.ask(a, nil, nil)
	s.eventually(time.Minute, c.met, "nothing was recorded")
	stop()
	s.freeze(a)
	s.cfg.Grace = time.Hour
	require.NoError(t, s.pass(nil))
	s.box(a, "redis")
	s.cfg.Grace = time.Nanosecond
	require.NoError(t, s.pass(nil))
	require.Empty(t, s.boxes(a))
}

// The lease of a run keeps the janitor from what the run has made.
func TestJanitorSparesARun(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	a := s.atWork("redis")
	c := (&cues{}).on("before record", func(string) error { return s.pass(nil) })
	s.with(c)
	wait := s.ask(a, nil, nil)
	got := s.granted(wait())
	require.True(t, c.met())
	require.Equal(t, got["redis"].Password, s.box(a, "redis").Env[engines.EnvPassword])
	require.Len(t, s.boxes(a), 1)
}

// An end, a request and a janitor's pass in between, again and again: the new sandbox lives.
func TestJanitorBetweenEndAndRequest(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.with(nil)
	s.project("p", []string{"redis"}, nil)
	a := s.slug("a")
	for range 20 {
		s.start(a, "T-1", "p")
		s.request(a)
		s.end(a)
		s.start(a, "T-1", "p")
		wait := s.ask(a, nil, nil)
		require.NoError(t, s.pass(nil))
		got := s.granted(wait())["redis"].Password
		require.NoError(t, s.pass(nil))
		require.Equal(t, got, s.request(a)["redis"].Password)
		s.end(a)
	}
	s.empty(a)
}
