package client

import (
	"encoding/json"
	"time"
)

// Codes of an envelope's error.
const (
	CodeInvalidState = "invalid_state" // a guard of request_sandbox, HTTP 200
	CodeUnauthorized = "unauthorized"  // HTTP 401
	CodeForbidden    = "forbidden"     // HTTP 403
	CodeNotFound     = "not_found"     // HTTP 404
	CodeNotAllowed   = "not_allowed"   // HTTP 405
	CodeTaken        = "taken"         // HTTP 409
	CodeConflict     = "conflict"      // HTTP 409: it would do harm, or nothing
	CodeTooLarge     = "too_large"     // HTTP 413
	CodeInvalidInput = "invalid_input" // HTTP 422
	CodeRateLimited  = "rate_limited"  // HTTP 429
	CodeInternal     = "internal"      // HTTP 500
	CodeUnavailable  = "unavailable"   // HTTP 503
)

// Statuses of an envelope.
const (
	StatusInProgress = "in_progress" // the sandbox is there, the work goes on
	StatusEnded      = "ended"       // the work has ended
	StatusError      = "error"       // error says which
)

// Envelope answers every verb, and is the body of every error. A null task, next, error or briefing is a nil pointer.
type Envelope struct {
	Status          string              `json:"status"`
	TaskID          *string             `json:"task_id"`
	Next            *string             `json:"next"`
	Evidence        map[string]Evidence `json:"evidence"`
	ContextBriefing *string             `json:"context_briefing"`
	Error           *string             `json:"error"`
	// Message and Remediate stand in errors only, and are never empty there.
	Message string `json:"message,omitempty"`
	// Warning says what of a call that succeeded may not be what was meant.
	Warning       string `json:"warning,omitempty"`
	Remediate     string `json:"remediate,omitempty"`
	CorrelationID string `json:"correlation_id"`
	RequestID     string `json:"request_id"`
	Retryable     bool   `json:"retryable"`
	RetryAfterMS  int64  `json:"retry_after_ms"`
}

// Failed says whether this is an error.
func (e *Envelope) Failed() bool { return e.Error != nil }

// MarshalJSON writes an absent evidence as an empty object.
func (e Envelope) MarshalJSON() ([]byte, error) {
	type plain Envelope // without this method
	if e.Evidence == nil {
		e.Evidence = map[string]Evidence{}
	}
	return json.Marshal(plain(e)) //nolint:wrapcheck // encoding/json wraps it with the type's name
}

// Evidence is one engine of a sandbox: where it is, how to log in, and how the request came by it.
type Evidence struct {
	Host         string  `json:"host"`
	Port         int     `json:"port"`
	User         *string `json:"user"` // null where the engine has none (redis)
	Password     string  `json:"password"`
	Database     *string `json:"database"` // null where the engine has none (redis)
	URL          string  `json:"url"`
	AuthDatabase string  `json:"auth_database,omitempty"`
	// Outcome is created, pooled, reused, extended or replaced; Reason says why when it is not obvious.
	Outcome   string    `json:"outcome,omitempty"`
	Reason    string    `json:"reason"`
	ExpiresAt time.Time `json:"expires_at"`
	// AvailableExtensions are the features active in this engine, sorted; absent when it is bare. Redis has the same
	// list as AvailableModules too.
	AvailableExtensions []string `json:"available_extensions,omitempty"`
	AvailableModules    []string `json:"available_modules,omitempty"`
	// Env is what the agent may export as it stands; no value is empty.
	Env map[string]string `json:"env"`
}

// Progress is one step of a provision.
type Progress struct {
	// ID is the reply stream's entry, what Last-Event-ID names.
	ID     string `json:"-"`
	Stage  string `json:"stage"` // accepted, queued, pulling, creating, probing, activating, ready
	Engine string `json:"engine,omitempty"`
	Done   int64  `json:"done,omitempty"`  // bytes, of a pull
	Total  int64  `json:"total,omitempty"` // bytes, of a pull; 0 while unknown
	// Position in the line while queued, 1 for the next; 0 where there is none: another request of the agent goes first.
	Position int `json:"position,omitempty"`
}

// SandboxRequest is the body of request_sandbox. Services nil asks for the project's whole opted set.
type SandboxRequest struct {
	Services   []string            `json:"services,omitempty"`
	Extensions map[string][]string `json:"extensions,omitempty"`
}

// Accepted answers the asynchronous form of request_sandbox.
type Accepted struct {
	RequestID   string `json:"request_id"`
	ReplyStream string `json:"reply_stream"` // the key in Redis
	Events      string `json:"events"`       // the path of the same as server-sent events
}
