package events

import (
	"encoding/json"
	"time"
)

// State is how a request ended.
type State string

// The terminal states. Stale, Late and Exhausted are given by scripts; their words are Stated's.
const (
	StateOK        State = "ok"
	StateRefused   State = "refused"   // by a guard
	StateFailed    State = "failed"    // provisioning failed
	StateStale     State = "stale"     // the work ended after the request was published
	StateLate      State = "late"      // no worker took it in time
	StateExhausted State = "exhausted" // tried too often
)

// Stage is a step of a provision, as told to who waits.
type Stage string

// The stages.
const (
	StageAccepted   Stage = "accepted"
	StageQueued     Stage = "queued"
	StagePulling    Stage = "pulling"
	StageCreating   Stage = "creating"
	StageProbing    Stage = "probing"
	StageActivating Stage = "activating"
	StageReady      Stage = "ready"
)

// Progress is one progress entry of a reply stream.
type Progress struct {
	Stage  Stage  `json:"stage"`
	Engine string `json:"engine,omitempty"`
	Done   int64  `json:"done,omitempty"`  // bytes, of a pull
	Total  int64  `json:"total,omitempty"` // bytes, of a pull; 0 while unknown
	// Position in the line, of StageQueued; 1 is the next, 0 is no line: another request of the agent is under way.
	Position int `json:"position,omitempty"`
}

// Refusal is why a request was not fulfilled. Message and Remediate are never empty, and hold no secret.
type Refusal struct {
	Guard        int    `json:"guard"` // 0 to 8, the guards of request_sandbox
	Message      string `json:"message"`
	Remediate    string `json:"remediate"`
	Retryable    bool   `json:"retryable"`
	RetryAfterMS int64  `json:"retry_after_ms,omitempty"`
}

// EngineReply is one engine in a terminal reply.
type EngineReply struct {
	Outcome  Outcome         `json:"outcome"`
	Reason   string          `json:"reason"`
	Features []string        `json:"features"`
	Payload  json.RawMessage `json:"payload"`
}

// Reply is one entry of a reply stream: Progress is set, or State is.
type Reply struct {
	ID       string // stream entry ID
	Progress *Progress

	State State
	// Task is the engagement's, where one is known.
	Task string
	// Engines is what was asked for (StateOK). Blanked: an end has taken the credentials away since.
	Engines map[string]EngineReply
	Blanked bool
	Expires time.Time // of the record, when the reply was written
	// Refusal is set for every state but StateOK.
	Refusal *Refusal
	// Body is what answers something other than sandbox.requested (the log lines).
	Body json.RawMessage
}

// Terminal says that nothing follows.
func (r Reply) Terminal() bool { return r.Progress == nil }
