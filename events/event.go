package events

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Type is the kind of an event.
type Type string

// The event types.
const (
	WorkStarted      Type = "work.started"
	WorkEnded        Type = "work.ended"
	SandboxRequested Type = "sandbox.requested"
	AgentStopped     Type = "agent.stopped"
	LogsRequested    Type = "logs.requested"
)

// Event is one event in CloudEvents' attribute names. Subject is the agent's slug.
type Event struct {
	SpecVersion string          `json:"specversion"`
	ID          string          `json:"id"`
	Type        Type            `json:"type"`
	Source      string          `json:"source"`
	Subject     string          `json:"subject"`
	Time        time.Time       `json:"time"`
	TraceParent string          `json:"traceparent,omitempty"`
	Data        json.RawMessage `json:"data"`
}

// Started is the data of work.started. Owner is "container", "lease" or empty: then the worker looks.
type Started struct {
	TaskID  string `json:"task_id"`
	Project string `json:"project"`
	Status  string `json:"status,omitempty"`
	Owner   string `json:"owner,omitempty"`
}

// Ended is the data of work.ended. An empty task ends whatever the agent works on.
type Ended struct {
	Verb   string `json:"verb"`
	TaskID string `json:"task_id,omitempty"`
}

// Requested is the data of sandbox.requested. Services nil asks for the whole opted set.
type Requested struct {
	RequestID  string              `json:"request_id"`
	Role       string              `json:"role"`
	Services   []string            `json:"services"`
	Extensions map[string][]string `json:"extensions"`
	// Gateway is the inbox that wants notices of replies; empty for none.
	Gateway string `json:"gateway,omitempty"`
}

// Stopped is the data of agent.stopped. Owner empty is an operator's removal.
type Stopped struct {
	Owner  string `json:"owner,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// LogsWanted is the data of logs.requested.
type LogsWanted struct {
	RequestID string `json:"request_id"`
	Engine    string `json:"engine,omitempty"` // empty = every engine
	Lines     int    `json:"lines"`
	Gateway   string `json:"gateway,omitempty"`
}

// OwnerLease is the owner of a sandbox that no container owns.
const OwnerLease = "lease"

// Errors of the bus, to be matched with errors.Is.
var (
	// ErrUnavailable: Redis did not answer; what was asked may or may not have happened.
	ErrUnavailable = errors.New("redis does not answer")
	// ErrFull: the work stream, or the agent's share of it, holds as many requests as it may.
	ErrFull = errors.New("too many requests wait")
	// ErrExpired: the reply stream is gone, or the request is unknown.
	ErrExpired = errors.New("no such request")
)

// DecodeError says why bytes are not an event. An entry with such bytes is dead-lettered.
type DecodeError struct {
	Attribute string // what was wrong: "type", "data.task_id", ...
	Problem   string
	Allowed   []string
}

// Error names the attribute, the problem and what is allowed.
func (e *DecodeError) Error() string {
	if e.Allowed == nil {
		return fmt.Sprintf("%s: %s", e.Attribute, e.Problem)
	}
	return fmt.Sprintf("%s: %s; allowed: %s", e.Attribute, e.Problem, strings.Join(e.Allowed, ", "))
}
