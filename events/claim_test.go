package events_test

import (
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/events"
)

// pooledEntry is what is recorded of a container from a pool.
func pooledEntry(id string, b events.Begun) events.Entry {
	e := entry(id, b)
	e.Pooled = true
	return e
}

func (s *scene) recordPooled(d events.Delivery, b events.Begun, id string) events.Fencing {
	s.Helper()
	f, err := s.bus.Record(s.Context(), d, b.Epoch, "redis", pooledEntry(id, b), events.Pooled, "", want("redis"))
	require.NoError(s, err)
	return f
}

// pooled is a container from a pool as somebody comes upon it.
func pooled(id string, b events.Begun) events.Found {
	f := found(id, b)
	f.Pooled = true
	return f
}

func (s *scene) forgets(slug, id string) {
	s.Helper()
	require.NoError(s, s.bus.Forget(s.Context(), slug, id))
}

// stranger claims a container for another agent.
func (s *scene) stranger(id string) {
	s.Helper()
	hands, runs := s.crowd(1)
	s.stock(reds(), id)
	c, _ := s.takes(hands[0], runs[0].Epoch, reds())
	require.Equal(s, id, c.ID)
}

func claimTests() []test {
	return []test{
		{"record: a container from a pool needs a claim of this agent", func(s *scene) {
			s.engage("")
			s.stranger("x")
			require.Equal(s, events.FateDead, s.retire(reds(), "y"))
			d, b := s.running("r-1")
			for title, id := range map[string]string{"another's": "x", "retired": "y", "nobody's": "z"} {
				require.Equal(s, events.Revoked, s.recordPooled(d, b, id), title)
				_, err := s.bus.Sandbox(s.Context(), agent, false)
				require.ErrorIs(s, err, events.ErrExpired, title)
			}
			s.stock(reds(), "a")
			s.takes(d, b.Epoch, reds())
			require.Equal(s, events.Held, s.recordPooled(d, b, "a"))
			require.JSONEq(s, `{"password":"pw-a"}`, string(s.terminal("r-1").Engines["redis"].Payload))
			sb, err := s.bus.Sandbox(s.Context(), agent, false)
			require.NoError(s, err)
			require.True(s, sb.Engines["redis"].Pooled)
			require.Equal(s, events.Held, s.record(d, b, "postgres", "z", nil), "one that came from no pool needs none")
		}},
		{"record: a later run records what an earlier one claimed", func(s *scene) {
			s.engage("")
			d, b := s.running("r-1")
			s.stock(reds(), "a")
			s.takes(d, b.Epoch, reds())
			require.Equal(s, events.Held, s.settle(d, b.Epoch, &events.Refusal{Guard: 8, Message: "m"}, nil))
			d, b = s.running("r-2")
			require.Equal(s, events.Held, s.recordPooled(d, b, "a"))
		}},
		{"an end leaves the claims: what they name is still to be removed", func(s *scene) {
			s.engage("container")
			for i, end := range []func(){
				func() { s.publish(events.AgentStopped, events.Stopped{Owner: cont}) },
				func() { s.publish(events.AgentStopped, events.Stopped{}) },
				func() {
					s.publish(events.WorkStarted, events.Started{TaskID: "T-2", Project: proj, Owner: "container"})
				},
			} {
				id := string(rune('a' + i))
				d, b := s.running("r-" + id)
				s.stock(reds(), id)
				c, _ := s.takes(d, b.Epoch, reds())
				require.Equal(s, events.Held, s.recordPooled(d, b, id))
				end()
				s.finishNext()
				require.Equal(s, map[string]events.Claim{id: c.Claim}, s.claims(id))
				require.Contains(s, s.claimedBy(agent), id)
				s.refuses(reds(), id)
			}
		}},
		{"forget: the claim of what was removed goes, another's stays", func(s *scene) {
			s.engage("")
			s.stranger("x")
			require.Equal(s, events.FateDead, s.retire(reds(), "y"))
			d, b := s.running("r-1")
			s.stock(reds(), "a", "b")
			s.takes(d, b.Epoch, reds())
			kept, _ := s.takes(d, b.Epoch, reds())
			for range 2 {
				for _, id := range []string{"a", "x", "y", "nowhere"} {
					s.forgets(agent, id)
				}
			}
			require.Equal(s, []string{"b"}, s.claimedBy(agent))
			left := s.claims("a", "b", "x", "y")
			require.Len(s, left, 3)
			require.Equal(s, kept.Claim, left["b"])
			require.Equal(s, "crowd-0", left["x"].Slug)
			require.True(s, left["y"].Retired)
		}},
		{"revoke: what another has claimed, or is retired, is left alone", func(s *scene) {
			s.engage("")
			s.stranger("x")
			require.Equal(s, events.FateDead, s.retire(reds(), "y"))
			_, b := s.running("r-1")
			for _, id := range []string{"x", "y"} {
				require.Equal(s, events.FateBusy, s.revoke(pooled(id, b), b.Epoch, alive()), id)
			}
			require.Equal(s, events.FateDead, s.revoke(pooled("z", b), b.Epoch, alive()), "nobody has")
		}},
		{"revoke: what was claimed for this agent goes as any other", func(s *scene) {
			s.engage("")
			d, b := s.running("r-1")
			s.stock(reds(), "a")
			s.takes(d, b.Epoch, reds())
			require.Equal(s, events.FateBusy, s.revoke(pooled("a", b), "", alive()), "it is being made ready")
			require.Equal(s, events.FateDead, s.revoke(pooled("a", b), b.Epoch, alive()))
			require.Equal(s, events.Revoked, s.recordPooled(d, b, "a"))
		}},
		{"adopt: the claim is written again", func(s *scene) {
			s.engage("")
			d, b := s.running("r-1")
			s.stock(reds(), "a")
			c, _ := s.takes(d, b.Epoch, reds())
			require.Equal(s, events.Held, s.recordPooled(d, b, "a"))
			s.forget()
			require.Empty(s, s.claims("a"))
			require.Equal(s, events.FateAdopted, s.adopt(pooled("a", b), alive()))
			require.Equal(s, map[string]events.Claim{"a": c.Claim}, s.claims("a"))
			require.Equal(s, []string{"a"}, s.claimedBy(agent))
			require.InDelta(s, 2*s.rdb.PTTL(s.Context(), s.key("record:"+agent)).Val(), s.rdb.PTTL(s.Context(), s.key("claim:a")).Val(), 1e9)
			s.refuses(reds(), "a")
			require.Equal(s, events.FateRecorded, s.adopt(pooled("a", b), alive()))
		}},
		{"adopt: one that came from no pool gets no claim", func(s *scene) {
			s.engage("")
			b := s.provision("r-1")
			s.forget()
			require.Equal(s, events.FateAdopted, s.adopt(found("r1", b), alive()))
			require.Empty(s, s.claims("r1"))
			require.Empty(s, s.claimedBy(agent))
		}},
		{"adopt: not what another has claimed since", func(s *scene) {
			s.engage("")
			_, b := s.running("r-1")
			s.forget()
			s.stranger("a")
			require.Equal(s, events.FateBusy, s.adopt(pooled("a", b), alive()))
			require.Equal(s, "crowd-0", s.claims("a")["a"].Slug)
			require.Equal(s, events.FateDead, s.retire(reds(), "y"))
			require.Equal(s, events.FateBusy, s.adopt(pooled("y", b), alive()))
		}},
		{"adopt: a claim that stands stays as it was written", func(s *scene) {
			s.engage("")
			d, b := s.running("r-1")
			s.stock(reds(), "a")
			c, _ := s.takes(d, b.Epoch, reds())
			require.NoError(s, s.rdb.Del(s.Context(), s.key("agent:"+agent)).Err())
			f := pooled("a", b)
			f.Born = "1-1"
			require.Equal(s, events.FateAdopted, s.adopt(f, alive()))
			require.Equal(s, map[string]events.Claim{"a": c.Claim}, s.claims("a"))
		}},
	}
}
