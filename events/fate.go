package events

import (
	"context"
	_ "embed"
)

//go:embed revoke.lua
var revokeLua string

//go:embed adopt.lua
var adoptLua string

// Found is a container that somebody came upon, as it stands now.
type Found struct {
	Slug, Engine, ID string
	Epoch, Born      string
	Tenancy          Tenancy // of its labels, or its claim
	FirstLife        bool
	// Pooled: it came from a pool. Where its claim has become another's it is Busy; adopted, it has its claim again.
	Pooled bool
}

// Present is what the caller knows of the agent outside Redis.
type Present struct {
	Task, Project string // of the durable store; empty when there is none or it has ended
	Owner         string // the agent's live container, OwnerLease, or empty
}

// Fate is what is to become of a container.
type Fate string

// The fates.
const (
	FateRecorded Fate = "RECORDED" // hands off
	FateBusy     Fate = "BUSY"     // hands off
	FateLost     Fate = "LOST"     // adopt it
	FateDead     Fate = "DEAD"     // revoked for ever: remove it by ID, at once
	FateAdopted  Fate = "OK"       // of Adopt alone: it is recorded now
	FateClaimed  Fate = "CLAIMED"  // of Retire alone: hands off, an agent has it
)

type fateArgs struct {
	Slug         string `json:"slug"`
	Engine       string `json:"engine"`
	ID           string `json:"id"`
	Epoch        string `json:"epoch"`
	Born         string `json:"born"`
	Task         string `json:"task"`
	Project      string `json:"project"`
	Owner        string `json:"owner"`
	FirstLife    int    `json:"first_life"`
	Pooled       int    `json:"pooled"`
	OwnEpoch     string `json:"own_epoch"`
	AliveTask    string `json:"alive_task"`
	AliveProject string `json:"alive_project"`
	Alive        string `json:"alive"`
}

func (f Found) args(ownEpoch string, p Present) fateArgs {
	a := fateArgs{
		Slug: f.Slug, Engine: f.Engine, ID: f.ID, Epoch: f.Epoch, Born: f.Born,
		Task: f.Tenancy.Task, Project: f.Tenancy.Project, Owner: f.Tenancy.Owner, OwnEpoch: ownEpoch,
		AliveTask: p.Task, AliveProject: p.Project, Alive: p.Owner,
	}
	if f.FirstLife {
		a.FirstLife = 1
	}
	if f.Pooled {
		a.Pooled = 1
	}
	return a
}

// Revoke decides whether a container may be removed; ownEpoch is the caller's, or empty.
func (b *Bus) Revoke(ctx context.Context, f Found, ownEpoch string, p Present) (Fate, error) {
	v, err := b.word(ctx, "ask whether container "+f.ID+" may go", b.scripts.revoke, b.keys(f.Slug, "", ""), f.args(ownEpoch, p))
	return Fate(v), err
}

// Adopt records a container that Redis has forgotten. Under a lease it is Busy, unless that is the one of ownEpoch.
func (b *Bus) Adopt(ctx context.Context, f Found, ownEpoch string, p Present, e Entry) (Fate, error) {
	raw, err := b.seal(f.Slug, f.Engine, e)
	if err != nil {
		return "", err
	}
	v, err := b.word(ctx, "adopt container "+f.ID, b.scripts.adopt, b.keys(f.Slug, "", ""), f.args(ownEpoch, p), raw)
	return Fate(v), err
}
