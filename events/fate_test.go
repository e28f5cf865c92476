package events_test

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/events"
)

// found is a redis container of the present tenancy, made by that run.
func found(id string, b events.Begun) events.Found {
	return events.Found{Slug: agent, Engine: "redis", ID: id, Epoch: b.Epoch, Born: b.Born, FirstLife: true, Tenancy: events.Tenancy{Task: task, Project: proj, Owner: cont}}
}

func alive() events.Present { return events.Present{Task: task, Project: proj, Owner: cont} }

func (s *scene) revoke(f events.Found, own string, p events.Present) events.Fate {
	s.Helper()
	v, err := s.bus.Revoke(s.Context(), f, own, p)
	require.NoError(s, err)
	return v
}

func (s *scene) adopt(f events.Found, p events.Present) events.Fate {
	s.Helper()
	return s.adoptUnder("", f, p)
}

// adoptUnder adopts under the lease of a run.
func (s *scene) adoptUnder(own string, f events.Found, p events.Present) events.Fate {
	s.Helper()
	v, err := s.bus.Adopt(s.Context(), f, own, p, events.Entry{ID: f.ID, Epoch: f.Epoch, Born: f.Born, Name: "n", Host: "h1", Payload: data(map[string]string{"password": "pw-" + f.ID})})
	require.NoError(s, err)
	return v
}

// forget is what a flush does to this cell.
func (s *scene) forget() {
	s.Helper()
	keys, _, err := s.rdb.Scan(s.Context(), 0, s.key("*"), 100000).Result()
	require.NoError(s, err)
	require.NotEmpty(s, keys)
	require.NoError(s, s.rdb.Del(s.Context(), keys...).Err())
	_, err = s.bus.Check(s.Context())
	require.NoError(s, err)
}

// as is a delivery that another consumer has taken over.
func (s *scene) as(name string, d events.Delivery) events.Delivery {
	s.Helper()
	found, err := s.rdb.XRange(s.Context(), s.key("events"), d.Entry, d.Entry).Result()
	require.NoError(s, err)
	out, err := events.Deliver(found[0], name)
	require.NoError(s, err)
	return out
}

// request2 is request after which other entries may still be unread: it reads up to its own.
func (s *scene) request2(id string) events.Delivery {
	s.Helper()
	p := s.publish(events.SandboxRequested, events.Requested{RequestID: id})
	for {
		if d := s.read(me); d.Entry == p.StreamID {
			return d
		}
	}
}

func fateTests() []test {
	return []test{
		{"revoke: recorded, and busy while a lease is live", func(s *scene) {
			s.engage("")
			b := s.provision("r-1")
			require.Equal(s, events.FateRecorded, s.revoke(found("r1", b), "", alive()))
			require.Equal(s, events.Run, s.begin(s.request("r-2"), owned("mongo")).Verdict)
			require.Equal(s, events.FateBusy, s.revoke(found("r1", b), "", alive()))
		}},
		{"revoke: what a live lease is making is busy, except to itself", func(s *scene) {
			s.engage("")
			b := s.begin(s.request("r-1"), args("redis"))
			require.Equal(s, events.FateBusy, s.revoke(found("r1", b), "", alive()))
			require.Equal(s, events.FateDead, s.revoke(found("r1", b), b.Epoch, alive()))
			require.Equal(s, events.FateDead, s.revoke(found("r1", b), "", alive()), "for ever")
			require.Equal(s, events.FateDead, s.adopt(found("r1", b), alive()))
		}},
		{"revoke: superseded, or older than an end", func(s *scene) {
			s.engage("")
			b := s.provision("r-1")
			require.Equal(s, events.FateDead, s.revoke(found("r0", b), "", alive()), "another is recorded")
			s.publish(events.AgentStopped, events.Stopped{})
			require.Equal(s, events.FateDead, s.revoke(found("r1", b), "", alive()))
		}},
		{"a record that expired is dead, not lost", func(s *scene) {
			b := s.with(func(c *events.Config) { c.TTL = 200 * time.Millisecond })
			s.engage("")
			d := s.request("r-1")
			run, err := b.Begin(s.Context(), d, args("redis"))
			require.NoError(s, err)
			f, err := b.Record(s.Context(), d, run.Epoch, "redis", entry("r1", run), events.Created, "", want("redis"))
			require.NoError(s, err)
			require.Equal(s, events.Held, f)
			require.Equal(s, events.Held, s.settle(d, run.Epoch, nil, want("redis")))
			s.eventually(func() bool {
				_, err := b.Sandbox(s.Context(), agent, false)
				return err != nil
			}, "the record expires")
			require.Equal(s, events.FateDead, s.revoke(found("r1", run), "", alive()))
		}},
		{"after a flush: lost, adopted, and a hit again", func(s *scene) {
			s.engage("container")
			b := s.provision("r-1")
			s.forget()
			f := found("r1", b)
			require.Equal(s, events.FateLost, s.revoke(f, "", alive()))
			require.Equal(s, events.FateAdopted, s.adopt(f, alive()))
			require.Equal(s, events.FateRecorded, s.revoke(f, "", alive()))
			require.Equal(s, events.FateRecorded, s.adopt(f, alive()))
			st := s.state()
			require.Equal(s, cont, st.Owner)
			require.Equal(s, task, st.Task)
			require.True(s, st.Owned)
			p := f
			p.Engine, p.ID = "postgres", "p1"
			require.Equal(s, events.FateAdopted, s.adopt(p, alive()), "its sibling too")
			d := s.request("r-2")
			hit := s.begin(d, owned("redis", "postgres"))
			require.Equal(s, events.Hit, hit.Verdict)
			require.Equal(s, "r1", hit.Record["redis"].ID)
			v, err := s.bus.AnswerHit(s.Context(), d, want("redis"), map[string]string{"redis": "r1"})
			require.NoError(s, err)
			require.Equal(s, events.Done, v)
			require.JSONEq(s, `{"password":"pw-r1"}`, string(s.terminal("r-2").Engines["redis"].Payload))
		}},
		{"after a flush: what is not of the present tenancy is dead", func(s *scene) {
			s.engage("")
			b := s.provision("r-1")
			for name, change := range map[string]func(*events.Found, *events.Present){
				"it was restarted":    func(f *events.Found, _ *events.Present) { f.FirstLife = false },
				"another task":        func(f *events.Found, _ *events.Present) { f.Tenancy.Task = "T-0" },
				"another project":     func(f *events.Found, _ *events.Present) { f.Tenancy.Project = "x" },
				"its owner is gone":   func(_ *events.Found, p *events.Present) { p.Owner = "" },
				"another owner lives": func(_ *events.Found, p *events.Present) { p.Owner = "new@later" },
				"the work has ended":  func(_ *events.Found, p *events.Present) { p.Task, p.Project = "", "" },
				"nobody knows whose":  func(f *events.Found, p *events.Present) { f.Tenancy = events.Tenancy{}; p.Owner = "" },
				"nobody is its tenant": func(f *events.Found, p *events.Present) {
					*f = events.Found{Slug: agent, Engine: "redis", ID: f.ID}
					*p = events.Present{}
				},
			} {
				s.forget()
				f, p := found("r1", b), alive()
				change(&f, &p)
				require.Equal(s, events.FateDead, s.adopt(f, p), name)
				require.Equal(s, events.FateDead, s.revoke(f, "", p), name)
			}
		}},
		{"an end that stands as a mark is not lost", func(s *scene) {
			s.engage("")
			b := s.provision("r-1")
			s.forget()
			s.publish(events.WorkEnded, events.Ended{TaskID: task})
			require.NoError(s, s.rdb.HDel(s.Context(), s.key("agent:"+agent), "ended").Err())
			require.Equal(s, events.FateDead, s.revoke(found("r1", b), "", alive()))
		}},
		{"a sandbox under a lease yields to a container", func(s *scene) {
			s.engage("")
			b := s.provision("r-1")
			s.forget()
			f, p := found("r1", b), alive()
			f.Tenancy.Owner, p.Owner = events.OwnerLease, events.OwnerLease
			require.Equal(s, events.FateLost, s.revoke(f, "", p))
			s.engage("container")
			require.Equal(s, events.FateDead, s.adopt(f, p))
		}},
		{"thrown back: the hash names a former owner, the container's lives", func(s *scene) {
			s.engage("")
			b := s.provision("r-1")
			require.NoError(s, s.rdb.HSet(s.Context(), s.key("agent:"+agent), "owner", "former@x", "epoch", "1").Err())
			require.NoError(s, s.rdb.Del(s.Context(), s.key("record:"+agent), s.key("fate:"+agent)).Err())
			require.Equal(s, events.FateBusy, s.revoke(found("r1", b), "", alive()))
			require.Equal(s, events.FateBusy, s.adopt(found("r1", b), alive()))
			p := s.publish(events.AgentStopped, events.Stopped{Owner: "former@x"})
			require.False(s, p.Moot)
			require.Equal(s, events.FateAdopted, s.adopt(found("r1", b), alive()), "newer than the last epoch that is remembered")
			require.Equal(s, cont, s.state().Owner)
		}},
		{"adopt: not under a live lease, not beside a record", func(s *scene) {
			s.engage("")
			b := s.provision("r-1")
			s.forget()
			run := s.begin(s.request("r-2"), args("redis"))
			require.Equal(s, events.Run, run.Verdict)
			require.Equal(s, events.FateBusy, s.adopt(found("r1", b), alive()))
			require.Equal(s, events.FateBusy, s.adoptUnder("1", found("r1", b), alive()), "under another's lease")
			require.Equal(s, events.FateAdopted, s.adoptUnder(run.Epoch, found("r1", b), alive()), "under its own lease")
			s.forget()
			require.Equal(s, events.FateAdopted, s.adopt(found("r1", b), alive()))
			require.Equal(s, events.FateDead, s.adopt(found("r2", b), alive()))
		}},
		{"an epoch that this Redis gave is not lost", func(s *scene) {
			s.engage("")
			b := s.provision("r-1")
			require.NoError(s, s.rdb.Del(s.Context(), s.key("record:"+agent), s.key("fate:"+agent)).Err())
			require.Equal(s, events.FateDead, s.revoke(found("r1", b), "", alive()))
		}},
		{"a record or a lease implies an owner", func(s *scene) {
			s.engage("")
			s.provision("r-1")
			require.NotEmpty(s, s.state().Owner)
			s.publish(events.AgentStopped, events.Stopped{Owner: cont})
			require.Empty(s, s.state().Owner)
			require.False(s, s.state().Leased)
			_, err := s.bus.Sandbox(s.Context(), agent, false)
			require.ErrorIs(s, err, events.ErrExpired)
			list, err := s.bus.Sandboxes(s.Context())
			require.NoError(s, err)
			require.Empty(s, list)
			owners, err := s.bus.Owners(s.Context())
			require.NoError(s, err)
			require.Empty(s, owners)
		}},
		{"set owned only for the engagement it was seen in", func(s *scene) {
			s.engage("")
			require.NoError(s, s.bus.SetOwned(s.Context(), agent, "T-0", proj))
			require.False(s, s.state().Owned)
			require.NoError(s, s.bus.SetOwned(s.Context(), agent, task, proj))
			require.True(s, s.state().Owned)
		}},
	}
}
