package workertest

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/state"
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

// pooled is the sound world with pools: one container was claimed, one waits, one was retired and is gone.
func pooled(t *testing.T) Rest {
	t.Helper()
	r := sound(t)
	payload := r.Records["a"].Engines["pg"].Payload
	born := func(id, name string) engines.Container {
		labels := map[string]string{labelOurs: "1", labelCell: cell, labelEngine: "pg", labelPool: "x:"}
		return engines.Container{ID: id, Name: name, Running: true, Labels: labels, Env: map[string]string{engines.EnvPassword: "secret"}}
	}
	r.Containers = append(r.Containers[1:], born("p1", "sandbox-pg-a"), born("p2", poolPrefix+"pg-2"))
	r.Records["a"].Engines["pg"] = events.Entry{ID: "p1", Born: "2000-0", Payload: payload}
	r.Truth.Lives = map[string]Life{
		"p1": {ID: "p1", Engine: "pg", Pooled: true, Password: "secret"}, "p2": {ID: "p2", Engine: "pg", Pooled: true}, "p3": {ID: "p3", Engine: "pg", Pooled: true, Removed: 1},
	}
	r.Stored = map[string]state.Claim{"p1": {ContainerID: "p1", Agent: "a", Epoch: "5", Born: "2000-0", Owner: "k1"}}
	r.Claims = map[string]events.Claim{
		"p1": {Slug: "a", Epoch: "5", Born: "2000-0", Tenancy: events.Tenancy{Owner: "k1"}}, "p3": {Retired: true},
	}
	r.Truth.Attribute(nil, r.Stored)
	r.Pools, r.Ceilings = map[string][]string{"{c}:pool:h:pg:x:": {"p2"}}, map[string]int{"pg": 1}
	return r
}

func TestRestOfPools(t *testing.T) {
	t.Parallel()
	require.Empty(t, pooled(t).Judge())
	claimed := func(r *Rest, change func(*events.Claim)) {
		c := r.Claims["p1"]
		change(&c)
		r.Claims["p1"] = c
	}
	const key = "{c}:pool:h:pg:x:"
	for _, c := range []struct {
		check, name string
		spoil       func(*Rest)
	}{
		{"R1", "a claimed one without a record", func(r *Rest) { delete(r.Records, "a") }},
		{"R2", "a claimed one under its first name", func(r *Rest) { r.Containers[1].Name = poolPrefix + "pg-1" }},
		{"R3", "a claimed one outlived an end", func(r *Rest) { claimed(r, func(c *events.Claim) { c.Born = "500-0" }) }},
		{"R8", "credentials of a claimed one after an end", func(r *Rest) { r.Agents["a"] = events.AgentState{Ended: "2000-0"} }},
		{"R10", "a claimed one outlived its owner", func(r *Rest) { claimed(r, func(c *events.Claim) { c.Tenancy.Owner = "k0" }) }},
		{"P2", "the store does not know", func(r *Rest) { delete(r.Stored, "p1") }},
		{"P2", "the store knows of another agent", func(r *Rest) { r.Stored["p1"] = state.Claim{Agent: "b", Epoch: "5"} }},
		{"P2", "the store knows of another run", func(r *Rest) { r.Stored["p1"] = state.Claim{Agent: "a", Epoch: "6"} }},
		{"P2", "somebody's was retired", func(r *Rest) { claimed(r, func(c *events.Claim) { c.Retired = true }) }},
		{"P4", "what waits does not run", func(r *Rest) { r.Containers[2].Running = false }},
		{"P4", "what waits stands in no pool", func(r *Rest) { r.Pools = nil }},
		{"P4", "what waits stands in two pools", func(r *Rest) { r.Pools["{c}:pool:h:pg:y:"] = []string{"p2"} }},
		{"P4", "what waits stands in a pool of another engine", func(r *Rest) { r.Pools = map[string][]string{"{c}:pool:h:redis:x:": {"p2"}} }},
		{"P4", "somebody has seen what waits", func(r *Rest) { r.Containers[2].Name = "sandbox-pg-b" }},
		{"P4", "more wait than may", func(r *Rest) { r.Ceilings["pg"] = 0 }},
		{"P4", "what stands in a pool is gone", func(r *Rest) { r.Pools[key] = append(r.Pools[key], "p4") }},
		{"P4", "what stands in a pool is somebody's", func(r *Rest) { r.Pools[key] = append(r.Pools[key], "p1") }},
		{"P4", "what stands in a pool was retired", func(r *Rest) { r.Claims["p2"] = events.Claim{Retired: true} }},
	} {
		t.Run(c.check+" "+c.name, func(t *testing.T) {
			t.Parallel()
			r := pooled(t)
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
