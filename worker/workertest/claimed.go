package workertest

import (
	"slices"
	"strings"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/state"
)

// Names of containers, as the contract has them.
const (
	sandboxPrefix = "roboco-sandbox-"
	poolPrefix    = sandboxPrefix + "pool-"
)

// Waits says that a container waits in a pool, or did so until a moment ago: its name is nobody's.
func Waits(c engines.Container) bool { return strings.HasPrefix(c.Name, poolPrefix) }

// Called notes a name that the container bears from this microsecond on.
func (l *Life) Called(name string, at int64) {
	if l.Name = name; !slices.Contains(l.Names, name) {
		l.Names = append(l.Names, name)
	}
	if l.Pooled && l.Seen == 0 && !strings.HasPrefix(name, poolPrefix) {
		l.Seen = at
	}
}

// OwnedBy says that the container is the agent's: by its label, or, where it was born in a pool, by a name that it has borne.
func (l Life) OwnedBy(slug string) bool {
	return !l.Pooled && l.Agent == slug || l.Pooled && slices.ContainsFunc(l.Names, func(name string) bool {
		_, agent, _ := strings.Cut(strings.TrimPrefix(name, sandboxPrefix), "-") // after the engine
		return agent == slug && !strings.HasPrefix(name, poolPrefix)
	})
}

// Attribute fills in whose the containers of a pool are, and under which tenancy: by what the durable store knows of them, which
// wins, else by the last claim in the marks. What was claimed twice is for the checks to judge.
func (t Truth) Attribute(marks []Mark, stored map[string]state.Claim) {
	for _, m := range marks {
		l, known := t.Lives[m.Container]
		if m.Kind != MarkClaim || !known || !l.Pooled {
			continue
		}
		l.Agent, l.Task, l.Project, l.Owner, l.Born, l.Epoch, l.Claimed = m.Agent, m.Task, m.Project, m.Owner, m.Born, m.Epoch, m.At
		t.Lives[l.ID] = l
	}
	for id, c := range stored {
		l, known := t.Lives[id]
		if !known || !l.Pooled {
			continue
		}
		if l.Claimed == 0 {
			l.Claimed = c.ClaimedAt.UnixMicro()
		}
		l.Agent, l.Task, l.Project, l.Owner, l.Born, l.Epoch = c.Agent, c.Task, c.Project, c.Owner, c.Born, c.Epoch
		t.Lives[id] = l
	}
}

// Pooled are the IDs of all containers that were born in a pool, sorted.
func (t Truth) Pooled() (ids []string) {
	for _, id := range sortedBy(t.Lives) {
		if t.Lives[id].Pooled {
			ids = append(ids, id)
		}
	}
	return ids
}
