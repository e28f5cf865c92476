package events

import (
	"encoding/json"
	"time"
)

// Tenancy is an engagement and the owner under it: a sandbox belongs to one, and to no other.
type Tenancy struct {
	Task, Project string
	// Owner is "<container id>@<started at>" or OwnerLease.
	Owner string
}

// Entry is one engine in a sandbox's record.
type Entry struct {
	ID    string `json:"id"`    // container ID, full
	Name  string `json:"name"`  // the name it is meant to bear
	Start string `json:"start"` // started at, exactly as the runtime gives it
	Epoch string `json:"epoch"` // the epoch it was made under
	Born  string `json:"born"`  // stream ID of the request it was made for
	Host  string `json:"host"`
	// Pooled: it came from a pool, so it is recorded only with a claim of this agent.
	Pooled bool `json:"pooled,omitempty"`
	// Features active in it, sorted.
	Features []string `json:"features"`
	// Payload is opaque here: credentials, image.
	Payload json.RawMessage `json:"payload"`
}

// Record is an agent's sandbox.
type Record struct {
	Slug    string
	Tenancy Tenancy
	Engines map[string]Entry
	// Expires is when the record lapses unless it is slid.
	Expires time.Time
}

// Want is one engine that is asked for, with the features it must have.
type Want struct {
	Engine   string
	Features []string
}

// Outcome says how a reply came by an engine.
type Outcome string

// The outcomes.
const (
	Created  Outcome = "created"
	Pooled   Outcome = "pooled"
	Reused   Outcome = "reused"
	Extended Outcome = "extended"
	Replaced Outcome = "replaced"
)

// AgentState is what Redis knows of an agent.
type AgentState struct {
	// Known: the hash has an engagement, or the mark of an ended one. Only when it has neither is it lost, and the
	// durable store asked.
	Known         bool
	Task, Project string
	// WorkEnded is the mark of an ended engagement.
	WorkEnded bool
	Owned     bool   // the engagement is owned by a container
	Owner     string // of the sandbox; empty when there is none
	Ended     string // watermark: the stream ID of the last end, empty when there was none
	Epoch     string // the last epoch given, empty when none was
	Leased    bool   // a lease is live
	Hosts     []string
}
