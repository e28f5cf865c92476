package events_test

import (
	"encoding/base64"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/events/seal"
)

// keys are sealing keys of these names; a name always has the same key.
func (s *scene) keys(names ...string) *seal.Keys {
	s.Helper()
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = name + ":" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(name, 32)[:32]))
	}
	k, err := seal.Parse(strings.Join(parts, ","))
	require.NoError(s, err)
	return k
}

// sealing makes the scene's bus one that seals; without names it is one that does not.
func (s *scene) sealing(names ...string) {
	s.Helper()
	s.bus = s.with(func(c *events.Config) {
		if len(names) > 0 {
			c.Sealer = s.keys(names...)
		}
	})
}

// everything is all that stands in this cell, as text.
func (s *scene) everything() string {
	s.Helper()
	var b strings.Builder
	keys, _, err := s.rdb.Scan(s.Context(), 0, s.key("*"), 100000).Result()
	require.NoError(s, err)
	for _, key := range keys {
		kind, err := s.rdb.Type(s.Context(), key).Result()
		require.NoError(s, err)
		read := map[string]func() (any, error){
			"stream": func() (any, error) { return s.rdb.XRange(s.Context(), key, "-", "+").Result() },
			"hash":   func() (any, error) { return s.rdb.HGetAll(s.Context(), key).Result() },
			"set":    func() (any, error) { return s.rdb.SMembers(s.Context(), key).Result() },
			"zset":   func() (any, error) { return s.rdb.ZRange(s.Context(), key, 0, -1).Result() },
			"string": func() (any, error) { return s.rdb.Get(s.Context(), key).Result() },
		}[kind]
		require.NotNil(s, read, "%s is a %s", key, kind)
		v, err := read()
		require.NoError(s, err)
		for _, text := range texts(v) {
			b.WriteString(text + "\n")
		}
	}
	return b.String()
}

func texts(v any) (all []string) {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []string:
		return v
	case map[string]string:
		for k, x := range v {
			all = append(all, k, x)
		}
	case []redis.XMessage:
		for _, m := range v {
			for k, x := range m.Values {
				all = append(all, k)
				all = append(all, texts(x)...)
			}
		}
	}
	return all
}

// opens asserts that the sandbox and a reply give these credentials.
func (s *scene) unseals(id string) {
	s.Helper()
	r, err := s.bus.Sandbox(s.Context(), agent, false)
	require.NoError(s, err)
	require.JSONEq(s, `{"password":"pw-p1"}`, string(r.Engines["postgres"].Payload))
	require.JSONEq(s, `{"password":"pw-r1"}`, string(s.terminal(id).Engines["redis"].Payload))
}

// refusesToOpen asserts that nothing is handed out, and that everybody is told why.
func (s *scene) refusesToOpen(says string) {
	s.Helper()
	var sealed *events.SealedError
	_, err := s.bus.Sandbox(s.Context(), agent, false)
	require.ErrorAs(s, err, &sealed)
	require.ErrorContains(s, err, says)
	all, err := s.bus.Sandboxes(s.Context())
	require.NoError(s, err, "what lives can be listed all the same")
	require.Len(s, all, 1)
	reply := s.terminal("r-1")
	require.Equal(s, events.StateFailed, reply.State)
	require.Empty(s, reply.Engines)
	require.Contains(s, reply.Refusal.Message, says)
	require.NotEmpty(s, reply.Refusal.Remediate)
	d := s.request("r-again")
	a := args("postgres")
	a.HashOwner = cont
	begun := s.begin(d, a)
	require.Equal(s, events.Hit, begun.Verdict)
	require.ErrorAs(s, begun.Sealed, &sealed)
	require.Len(s, begun.Record, 2, "nothing was struck")
}

func sealTests() []test {
	return []test{
		{"sealed: nothing readable while a sandbox lives", func(s *scene) {
			s.engage("")
			s.provision("r-1")
			require.Contains(s, s.everything(), "pw-p1", "the look is a fair one")
			s.publish(events.WorkEnded, events.Ended{})
			s.finishNext()
			s.sealing("k1")
			s.engage("")
			s.provision("r-2")
			s.provisionAgain("r-3")
			s.unseals("r-3")
			require.NotContains(s, s.everything(), "pw-")
		}},
		{"sealed: keys are switched on while a sandbox lives", func(s *scene) {
			s.engage("")
			s.provision("r-1")
			s.sealing("k1")
			s.unseals("r-1")
		}},
		{"sealed: rotation", func(s *scene) {
			s.engage("")
			s.sealing("k1")
			s.provision("r-1")
			s.sealing("k2", "k1")
			s.unseals("r-1")
			d := s.request("r-2")
			a := args("postgres")
			a.HashOwner = cont
			b := s.begin(d, a)
			require.NoError(s, b.Sealed)
			v, err := s.bus.AnswerHit(s.Context(), d, a.Asked, map[string]string{"postgres": "p1"})
			require.NoError(s, err)
			require.Equal(s, events.Done, v)
			require.JSONEq(s, `{"password":"pw-p1"}`, string(s.terminal("r-2").Engines["postgres"].Payload))
		}},
		{"sealed: a key that is not there", func(s *scene) {
			s.engage("")
			s.sealing("k1")
			s.provision("r-1")
			s.sealing("k2")
			s.refusesToOpen("sealed under a key that is not configured here: k1")
		}},
		{"sealed: no keys at all", func(s *scene) {
			s.engage("")
			s.sealing("k1")
			s.provision("r-1")
			s.sealing()
			s.refusesToOpen("no keys are configured here")
		}},
		{"sealed: bytes of another agent, another engine or another container", func(s *scene) {
			s.engage("")
			s.sealing("k1")
			s.provision("r-1")
			record := s.rdb.HGetAll(s.Context(), s.key("record:"+agent)).Val()
			of := func(engine string) string {
				var e events.Entry
				s.decode(record[engine], &e)
				return string(e.Payload)
			}
			move := func(slug, engine, from string) {
				raw := strings.Replace(record[engine], of(engine), from, 1)
				require.NoError(s, s.rdb.HSet(s.Context(), s.key("record:"+slug), engine, raw).Err())
			}
			move("another", "postgres", of("postgres"))
			_, err := s.bus.Sandbox(s.Context(), "another", false)
			require.ErrorContains(s, err, "does not open")
			_, err = s.bus.Sandbox(s.Context(), agent, false)
			require.NoError(s, err)
			move(agent, "redis", of("postgres"))
			_, err = s.bus.Sandbox(s.Context(), agent, false)
			require.ErrorContains(s, err, "does not open")
			move(agent, "redis", of("redis"))
			require.NoError(s, s.rdb.HSet(s.Context(), s.key("record:"+agent), "redis", strings.Replace(record["redis"], `"r1"`, `"r2"`, 1)).Err())
			_, err = s.bus.Sandbox(s.Context(), agent, false)
			require.ErrorContains(s, err, "does not open")
		}},
		{"sealed: a container that is adopted", func(s *scene) {
			s.engage("container")
			s.sealing("k1")
			b := s.provision("r-1")
			require.NoError(s, s.rdb.Del(s.Context(), s.key("record:"+agent), s.key("agent:"+agent), s.key("fate:"+agent)).Err())
			f := events.Found{Slug: agent, Engine: "postgres", ID: "p1", Epoch: b.Epoch, Born: b.Born, Tenancy: events.Tenancy{Task: task, Project: proj, Owner: cont}, FirstLife: true}
			fate, err := s.bus.Adopt(s.Context(), f, "", events.Present{Task: task, Project: proj, Owner: cont}, entry("p1", b))
			require.NoError(s, err)
			require.Equal(s, events.FateAdopted, fate)
			r, err := s.bus.Sandbox(s.Context(), agent, false)
			require.NoError(s, err)
			require.JSONEq(s, `{"password":"pw-p1"}`, string(r.Engines["postgres"].Payload))
			require.NotContains(s, s.everything(), "pw-")
		}},
	}
}

// provisionAgain answers another request from the record.
func (s *scene) provisionAgain(id string) {
	s.Helper()
	d := s.request(id)
	a := args("postgres", "redis")
	a.HashOwner = cont
	require.Equal(s, events.Hit, s.begin(d, a).Verdict)
	_, err := s.bus.AnswerHit(s.Context(), d, a.Asked, map[string]string{"postgres": "p1", "redis": "r1"})
	require.NoError(s, err)
}
