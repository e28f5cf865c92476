package workertest

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
)

// sound is a world at rest with one sandbox of one engine, one answered request and a stranger.
func sound(t *testing.T) Rest {
	t.Helper()
	payload, err := json.Marshal(engines.Instance{Credentials: engines.Credentials{Password: "secret"}})
	require.NoError(t, err)
	life := Life{ID: "c1", Agent: "a", Engine: "pg", Task: "t1", Owner: "k1", Born: "2000-0", Password: "secret"}
	return Rest{
		Containers: []engines.Container{
			{ID: "c1", Name: "sandbox-pg-a", Running: true, Labels: labelsOf(life, cell), Env: map[string]string{engines.EnvPassword: "secret"}},
			{ID: "s1", Name: "theirs", Running: true},
		},
		Records:  map[string]events.Record{"a": {Slug: "a", Engines: map[string]events.Entry{"pg": {ID: "c1", Born: "2000-0", Payload: payload}}}},
		Agents:   map[string]events.AgentState{"a": {Ended: "1000-0"}},
		Replies:  map[string][]events.Reply{"r": {{State: events.StateOK, Engines: map[string]events.EngineReply{"pg": {Payload: payload}}}}},
		ReplyOf:  map[string]string{"r": "a"},
		Owners:   map[string]string{"a": "k1"},
		Names:    func(engine, agent string) string { return "sandbox-" + engine + "-" + agent },
		Truth:    Truth{Lives: map[string]Life{"c1": life}},
		Stranger: "s1", Consumers: 3, Workers: 2, DeadLetters: 1, Garbage: 1,
	}
}

func TestRest(t *testing.T) {
	t.Parallel()
	require.Empty(t, sound(t).Judge())
	for _, c := range []struct {
		check, name string
		spoil       func(*Rest)
	}{
		{"L2", "an entry is left", func(r *Rest) { r.Queued = 1 }},
		{"L2", "an entry is pending", func(r *Rest) { r.Pending = 1 }},
		{"R1", "a container without a record", func(r *Rest) { delete(r.Records, "a") }},
		{"R1", "another container is recorded", func(r *Rest) { r.Records["a"].Engines["pg"] = events.Entry{ID: "c2"} }},
		{"R1", "another password", func(r *Rest) { r.Containers[0].Env[engines.EnvPassword] = "else" }},
		{"R2", "another name", func(r *Rest) { r.Containers[0].Name = "sandbox-pg-a-5" }},
		{"R3", "it outlived an end", func(r *Rest) { r.Agents["a"] = events.AgentState{Ended: "2000-0"} }},
		{"R4", "a record of what is gone", func(r *Rest) { r.Containers = r.Containers[1:] }},
		{"R5", "a consumer too many", func(r *Rest) { r.Consumers = 4 }},
		{"R7", "the stranger is gone", func(r *Rest) { r.Containers = r.Containers[:1] }},
		{"R7", "the stranger was stopped", func(r *Rest) { r.Containers[1].Running = false }},
		{"R8", "credentials after an end", func(r *Rest) { r.Agents["a"] = events.AgentState{Ended: "2000-0"} }},
		{"R9", "a dead letter too many", func(r *Rest) { r.DeadLetters = 2 }},
		{"R9", "garbage that vanished", func(r *Rest) { r.DeadLetters = 0 }},
		{"R10", "it outlived its owner", func(r *Rest) { r.Owners["a"] = "k2" }},
		{"H5", "two terminal entries", func(r *Rest) { r.Replies["r"] = append(r.Replies["r"], r.Replies["r"][0]) }},
		{"H5", "no terminal entry", func(r *Rest) { r.Replies["r"] = nil }},
	} {
		t.Run(c.check+" "+c.name, func(t *testing.T) {
			t.Parallel()
			r := sound(t)
			c.spoil(&r)
			require.Contains(t, checksOf(r.Judge()), c.check)
		})
	}
}

func TestRefusedLiving(t *testing.T) {
	t.Parallel()
	gone := events.Reply{State: events.StateRefused, Refusal: &events.Refusal{Guard: 2, Message: "the agent's container is gone"}}
	require.True(t, refusedLiving(gone, "k1", "k1"))
	require.False(t, refusedLiving(gone, "k1", "k2"), "the asker has gone")
	require.False(t, refusedLiving(gone, events.OwnerLease, events.OwnerLease))
	require.False(t, refusedLiving(events.Reply{State: events.StateOK}, "k1", "k1"))
}
