package client

import (
	"encoding/json"
	"slices"
	"time"
)

// Project is a project and its opt-in. Services nil is "not opted in", Extensions nil is bare.
type Project struct {
	Slug       string              `json:"slug"`
	Name       string              `json:"name"`
	Services   []string            `json:"sandbox_services"`
	Extensions map[string][]string `json:"sandbox_extensions"`
	CreatedAt  time.Time           `json:"created_at,omitzero"`
	UpdatedAt  time.Time           `json:"updated_at,omitzero"`
}

// ProjectPatch changes what is set in it, and leaves the rest. SetServices with nil Services opts the project out.
type ProjectPatch struct {
	Name          *string
	SetServices   bool
	Services      []string
	SetExtensions bool
	Extensions    map[string][]string
}

// MarshalJSON writes the fields that are set, null where that is their value.
func (p ProjectPatch) MarshalJSON() ([]byte, error) {
	m := map[string]any{}
	if p.Name != nil {
		m["name"] = *p.Name
	}
	if p.SetServices {
		m["sandbox_services"] = p.Services
	}
	if p.SetExtensions {
		m["sandbox_extensions"] = p.Extensions
	}
	return json.Marshal(m) //nolint:wrapcheck // encoding/json names the value
}

// Spawn is what an agent of a project is started with: never credentials.
type Spawn struct {
	Services []string          `json:"services"`
	Env      map[string]string `json:"env"`
	Briefing *string           `json:"briefing"`
}

// Agent is an identity.
type Agent struct {
	Slug      string    `json:"slug"`
	Role      string    `json:"role"`
	Revoked   bool      `json:"revoked"`
	CreatedAt time.Time `json:"created_at,omitzero"`
}

// NewAgent is an identity with its token, which is shown this once.
type NewAgent struct {
	Slug  string `json:"slug"`
	Role  string `json:"role"`
	Token string `json:"token"`
}

// Sandbox is an agent's own sandbox.
type Sandbox struct {
	Agent     string              `json:"agent"`
	TaskID    string              `json:"task_id"`
	Project   string              `json:"project"`
	ExpiresAt time.Time           `json:"expires_at"`
	Engines   map[string]Evidence `json:"engines"`
}

// SandboxSummary is one sandbox that lives, as an operator sees it: without credentials.
type SandboxSummary struct {
	Agent     string          `json:"agent"`
	TaskID    string          `json:"task_id"`
	Project   string          `json:"project"`
	Owner     string          `json:"owner"` // "<container id>@<started at>" or "lease"
	ExpiresAt time.Time       `json:"expires_at"`
	Engines   []EngineSummary `json:"engines"`
}

// EngineSummary is one container of a sandbox.
type EngineSummary struct {
	Engine      string    `json:"engine"`
	Container   string    `json:"container"`
	ContainerID string    `json:"container_id"`
	Features    []string  `json:"features"`
	Host        string    `json:"host,omitempty"`
	CreatedAt   time.Time `json:"created_at"` // when the request was published that it was made for
	AgeSeconds  int64     `json:"age_seconds"`
	MemoryBytes int64     `json:"memory_bytes"` // the container's limit
}

// EngineDescription is one engine of the registry.
type EngineDescription struct {
	Name         string   `json:"name"`
	Image        string   `json:"image"`
	FeatureImage string   `json:"feature_image,omitempty"`
	Port         int      `json:"port"`
	ReadyWithin  int64    `json:"ready_within_seconds"`
	Features     []string `json:"features"` // the allowlist, sorted
	User         *string  `json:"user"`
	Database     *string  `json:"database"`
	AuthDatabase string   `json:"auth_database,omitempty"`
	Env          []string `json:"env"` // the names it emits, sorted
}

// VerbDescription is one verb and the roles that carry it.
type VerbDescription struct {
	Name       string   `json:"name"`
	Roles      []string `json:"roles"` // sorted
	WorkEnding bool     `json:"work_ending"`
}

// Manifest is every verb, with the identity that the token asked about stands for.
type Manifest struct {
	Agent string            `json:"agent"`
	Role  string            `json:"role"`
	Verbs []VerbDescription `json:"verbs"`
}

// Carries says whether the caller's own role carries a verb.
func (m Manifest) Carries(verb string) bool {
	for _, v := range m.Verbs {
		if v.Name != verb {
			continue
		}
		if slices.Contains(v.Roles, m.Role) {
			return true
		}
	}
	return false
}

// Logs are the last lines of an agent's engines, by engine, passwords blanked. An engine without a container is absent.
type Logs struct {
	Agent string            `json:"agent"`
	Logs  map[string]string `json:"logs"`
}

// LogsFilter narrows Logs. Agent empty is the caller's own; Engine empty is every engine; Lines 0 is the gateway's default.
type LogsFilter struct {
	Agent  string
	Engine string
	Lines  int
}

// HistoryRow is one request: who asked what, when, and what came of it.
type HistoryRow struct {
	ID         string              `json:"request_id"`
	Agent      string              `json:"agent"`
	Role       string              `json:"role"`
	TaskID     string              `json:"task_id"`
	Project    string              `json:"project"`
	Host       string              `json:"host"`
	Worker     string              `json:"worker"`
	Services   []string            `json:"services"` // as asked; null = the whole set
	Extensions map[string][]string `json:"extensions"`
	Outcome    string              `json:"outcome"` // ok, refused, failed, stale, late, exhausted
	Guard      *int                `json:"guard"`   // null when none refused
	Message    string              `json:"message"`
	Containers []HistoryContainer  `json:"containers"`
	AskedAt    time.Time           `json:"asked_at"`
	DoneAt     time.Time           `json:"done_at"`
	PhasesMS   map[string]int64    `json:"phases_ms"`
}

// HistoryContainer is a container that a request was answered with.
type HistoryContainer struct {
	ID      string `json:"id"`
	Engine  string `json:"engine"`
	Outcome string `json:"outcome"`
}

// HistoryFilter narrows and pages Requests; zero fields do not narrow.
type HistoryFilter struct {
	Agent, Project, TaskID, Outcome string
	Before                          string // HistoryPage.NextBefore of the page before
	Limit                           int    // 1 to 500; 0 = 50
}

// HistoryPage is a page of the history, newest first. NextBefore is empty on the last page.
type HistoryPage struct {
	Requests   []HistoryRow `json:"requests"`
	NextBefore string       `json:"next_before"`
}

// Flag is a switch. Value is the run-time value, nil when none is set: then the environment's counts.
type Flag struct {
	Name      string `json:"name"`
	Value     *bool  `json:"value"`
	Effective bool   `json:"effective"`
}

// Event is one event to publish, in CloudEvents' attribute names. Subject is the agent's slug.
type Event struct {
	ID          string          `json:"id"`
	Type        string          `json:"type"` // work.started, work.ended, agent.stopped
	Source      string          `json:"source"`
	Subject     string          `json:"subject"`
	TraceParent string          `json:"traceparent,omitempty"`
	Data        json.RawMessage `json:"data"`
}

// Publication is what became of an event.
type Publication struct {
	ID       string `json:"id"`
	StreamID string `json:"stream_id"` // of its first publication
	Known    bool   `json:"known"`     // it was published before
	Moot     bool   `json:"moot"`      // it changed nothing
	// Warning says what of the event may not be what was meant; it was published all the same.
	Warning string `json:"warning,omitempty"`
}

// Health is the readiness of a gateway.
type Health struct {
	Ready   bool              `json:"ready"`
	Version string            `json:"version"`
	Checks  map[string]string `json:"checks"` // "ok", or what is wrong
}
