package events_test

import (
	"maps"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/roboco/sandboxd/events"
)

// glance is what a worker sees of a request whose sandbox stands.
func (s *scene) glance(asked ...string) events.Glance {
	s.Helper()
	stood, err := s.bus.Standing(s.Context(), alone())
	require.NoError(s, err)
	g := events.Glance{
		Asked: want(asked...), At: stood.At, Checked: map[string]string{},
		Seen: events.Tenancy{Task: stood.Agent.Task, Project: stood.Agent.Project, Owner: stood.Agent.Owner},
	}
	for _, w := range g.Asked {
		g.Checked[w.Engine] = stood.Record[w.Engine].ID
	}
	return g
}

func (s *scene) answers(v events.Verdict, d events.Delivery, g events.Glance, why string) {
	s.Helper()
	got, err := s.bus.AnswerGlance(s.Context(), d, g)
	require.NoError(s, err)
	require.Equal(s, v, got, why)
}

func glanceTests() []test {
	return []test{
		{"a hit at a glance: answered without a begin", func(s *scene) {
			s.engage("")
			s.provision("r-1")
			d := s.request("r-2")
			before := s.state()
			g := s.glance("redis", "postgres")
			s.answers(events.Done, d, g, "")
			r := s.terminal("r-2")
			require.Equal(s, events.StateOK, r.State)
			require.Equal(s, events.Reused, r.Engines["redis"].Outcome)
			require.JSONEq(s, `{"password":"pw-p1"}`, string(r.Engines["postgres"].Payload))
			require.Equal(s, before, s.state())
			s.drained()
			s.answers(events.Lost, d, g, "it is answered")
			last, err := s.rdb.XRevRangeN(s.Context(), s.key("audit"), "+", "-", 1).Result()
			require.NoError(s, err)
			require.Equal(s, cont, last[0].Values["own"])
			checked, err := time.ParseDuration(last[0].Values["chk"].(string) + "us") //nolint:forcetypeassert // a test
			require.NoError(s, err)
			require.Equal(s, g.At.UnixMicro(), checked.Microseconds())
		}},
		{"a hit at a glance: what has changed since is left to begin", func(s *scene) {
			s.engage("")
			s.provision("r-1")
			d := s.request("r-2")
			g := s.glance("redis")
			for why, change := range map[string]func(*events.Glance){
				"another task":       func(g *events.Glance) { g.Seen.Task = "T-0" },
				"another project":    func(g *events.Glance) { g.Seen.Project = "other" },
				"another owner":      func(g *events.Glance) { g.Seen.Owner = "new@later" },
				"nobody":             func(g *events.Glance) { g.Seen.Owner = "" },
				"another container":  func(g *events.Glance) { g.Checked = map[string]string{"redis": "r0"} },
				"nothing was seen":   func(g *events.Glance) { g.Checked = nil },
				"nothing was asked":  func(g *events.Glance) { g.Asked = nil },
				"more is asked":      func(g *events.Glance) { g.Asked = want("redis", "mongo") },
				"features are asked": func(g *events.Glance) { g.Asked = want("redis+json") },
			} {
				other := g
				other.Checked = maps.Clone(g.Checked)
				change(&other)
				s.answers(events.Again, d, other, why)
			}
			require.Empty(s, s.told("r-2"))
			s.answers(events.Done, d, g, "it stands as it was")
		}},
		{"a hit at a glance: not where the engagement or its owner are of another kind by now", func(s *scene) {
			s.engage("")
			s.provision("r-1")
			d := s.request("r-2")
			g := s.glance("redis")
			hash := s.key("agent:" + agent)
			require.NoError(s, s.rdb.HSet(s.Context(), hash, "over", 1).Err())
			s.answers(events.Again, d, g, "the work is over")
			require.NoError(s, s.rdb.HDel(s.Context(), hash, "over").Err())
			require.NoError(s, s.rdb.HSet(s.Context(), hash, "owner", events.OwnerLease, "owned", 1).Err())
			g.Seen.Owner = events.OwnerLease
			s.answers(events.Again, d, g, "a lease, where a container owns")
			require.NoError(s, s.rdb.HDel(s.Context(), hash, "owned").Err())
			s.answers(events.Done, d, g, "a lease, where none does")
		}},
		{"a hit at a glance: an end comes in between", func(s *scene) {
			s.engage("")
			s.provision("r-1")
			d := s.request("r-2")
			g := s.glance("redis")
			s.publish(events.AgentStopped, events.Stopped{})
			s.answers(events.Again, d, g, "")
			require.Equal(s, events.Done, s.begin(d, owned("redis")).Verdict)
			require.Equal(s, events.StateStale, s.terminal("r-2").State)
		}},
		{"a hit at a glance: what is answered, or forgotten, is begun", func(s *scene) {
			s.engage("")
			s.provision("r-1")
			s.answers(events.Again, s.request("r-1"), s.glance("redis"), "it is answered, under another event")
			d := s.request("r-2")
			require.NoError(s, s.rdb.HDel(s.Context(), s.key("request:r-2"), "born").Err())
			s.answers(events.Again, d, s.glance("redis"), "since when is not known")
			require.Equal(s, events.Hit, s.begin(d, owned("redis")).Verdict)
			s.answers(events.Done, d, s.glance("redis"), "now it is")
		}},
		{"a hit at a glance: not when it is late, unless it was queued in time", func(s *scene) {
			b := s.with(func(c *events.Config) { c.Accept = time.Millisecond })
			s.engage("")
			s.provision("r-1")
			_, err := b.Publish(s.Context(), s.event(events.SandboxRequested, events.Requested{RequestID: "r-2"}))
			require.NoError(s, err)
			d := s.read(me)
			s.passes(d.Deadline)
			s.answers(events.Again, d, s.glance("redis"), "late")
			require.NoError(s, s.rdb.HSet(s.Context(), s.key("request:r-2"), "seen", 1).Err())
			s.answers(events.Done, d, s.glance("redis"), "queued")
		}},
	}
}

// glance is a hit that was not begun, by a look that may have grown old.
func (w *walk) glance(rt *rapid.T) {
	h := w.pick(rt, func(h *hand) bool {
		return h.looked && h.epoch == "" && h.owner == h.seen.Owner && h.stood.Record["redis"].ID != ""
	})
	if h == nil {
		rt.Skip("nobody is there")
	}
	g := events.Glance{Asked: want("redis"), Seen: h.seen, At: h.stood.At, Checked: map[string]string{"redis": h.stood.Record["redis"].ID}}
	v, err := w.bus.AnswerGlance(w.t.Context(), h.d, g)
	w.ok(err)
	if v != events.Again {
		w.drop(h)
	}
}

func (p *pair) glance(rt *rapid.T) {
	h := p.pick(rt, func(h *holder) bool { return h.looked && h.epoch == "" })
	if rapid.Bool().Draw(rt, "fresh") {
		p.guard(h)
	}
	seen := h.seen // a worker goes by what it saw, and so does a begin after this
	if rapid.IntRange(0, 3).Draw(rt, "owner") > 0 {
		seen.Owner = h.owner
	}
	if !h.looked || h.stood == "" || seen.Owner == "" {
		rt.Skip("nothing was seen")
	}
	checked := map[string]string{"redis": h.stood}
	got, err := p.bus.AnswerGlance(p.t.Context(), h.d, events.Glance{Asked: want("redis"), Seen: seen, At: time.Now(), Checked: checked})
	p.ok(err)
	late := !h.d.Deadline.IsZero() && time.Until(h.d.Deadline) < 0
	require.Equal(rt, p.m.glance(h, seen, want("redis"), checked, late), got)
	if got != events.Again {
		p.let(h)
	}
}

func (m *machine) glance(h *holder, seen events.Tenancy, wants []events.Want, checked map[string]string, late bool) events.Verdict {
	if m.stream[h.d.Entry] != h.name {
		return events.Lost
	}
	q, w := m.asked[h.rid], m.work
	switch {
	case q == nil || q.born == "" || q.state != "" || late && !q.seen:
		return events.Again
	case w.over || w.owner == "" || w.task != seen.Task || w.project != seen.Project || w.owner != seen.Owner:
		return events.Again
	case w.owner == events.OwnerLease && w.owned:
		return events.Again
	}
	return m.hit(h, wants, checked)
}
