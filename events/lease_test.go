package events_test

import (
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/events"
)

func leaseTests() []test {
	return []test{
		{"a run from request to reply", func(s *scene) {
			s.engage("container")
			d := s.request("r-1")
			a := args("postgres")
			b := s.begin(d, a)
			require.Equal(s, events.Run, b.Verdict)
			require.Equal(s, d.Entry, b.Born)
			require.Empty(s, b.Record)
			require.NoError(s, s.bus.Tell(s.Context(), d, b.Epoch, events.Progress{Stage: events.StageCreating, Engine: "postgres"}))
			require.Equal(s, events.Held, s.record(d, b, "postgres", "p1", a.Asked, "vector"))
			r := s.terminal("r-1")
			require.Equal(s, events.StateOK, r.State)
			require.Equal(s, task, r.Task)
			require.Equal(s, events.Created, r.Engines["postgres"].Outcome)
			require.Equal(s, []string{"vector"}, r.Engines["postgres"].Features)
			require.JSONEq(s, `{"password":"pw-p1"}`, string(r.Engines["postgres"].Payload))
			require.Len(s, r.Engines, 1)
			require.Equal(s, events.Held, s.record(d, b, "redis", "r1", a.Asked))
			require.NoError(s, s.bus.Tell(s.Context(), d, b.Epoch, events.Progress{Stage: events.StageReady}), "after the reply: not written")
			require.Equal(s, events.Held, s.settle(d, b.Epoch, nil, a.Asked))
			s.terminal("r-1")
			s.drained()
			st := s.state()
			require.Equal(s, cont, st.Owner)
			require.True(s, st.Owned)
			require.False(s, st.Leased)
			require.Equal(s, b.Epoch, st.Epoch)
			require.Equal(s, []string{"h1"}, st.Hosts)
		}},
	}
}
