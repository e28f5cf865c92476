package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Errors of every store, to be matched with errors.Is or errors.As.
var (
	// ErrNotFound: there is no such project, agent or row.
	ErrNotFound = errors.New("not found")
	// ErrPublished: an event of this ID was published before: it is not to be published again, whatever Redis remembers.
	ErrPublished = errors.New("it was published before")
	// ErrClaimed: the container was claimed for another run before.
	ErrClaimed = errors.New("it was claimed before")
	// ErrTaken: the slug is in use.
	ErrTaken = errors.New("name is taken")
	// ErrUnavailable: the store did not answer; nothing was changed, or it is not known.
	ErrUnavailable = errors.New("state store does not answer")
)

// InvalidError says what of a write was refused, and what is allowed instead. Nothing was stored.
type InvalidError struct {
	Field   string   // "sandbox_services", "slug", ...
	Problem string   // what was wrong, naming the bad values
	Allowed []string // the allowed values, sorted; nil where there is no finite set
}

// Error says all three.
func (e *InvalidError) Error() string {
	if e.Allowed == nil {
		return fmt.Sprintf("%s: %s", e.Field, e.Problem)
	}
	allowed := "none"
	if len(e.Allowed) > 0 {
		allowed = strings.Join(e.Allowed, ", ")
	}
	return fmt.Sprintf("%s: %s; allowed: %s", e.Field, e.Problem, allowed)
}

// Catalog is the allowlist that every write of a project is held to: services in registry order, features sorted.
type Catalog struct {
	Services []string
	Features map[string][]string
}

// Project is one project and its opt-in. Services nil is "not opted in", empty is kept as empty (and counts as not
// opted in at a request). Extensions nil is bare; it may hold features of a service that is not opted in, which count
// once it is.
type Project struct {
	Slug       string
	Name       string
	Services   []string
	Extensions map[string][]string
	CreatedAt  time.Time
	UpdatedAt  time.Time
}

// ProjectPatch changes the fields that are set; SetServices with Services nil opts the project out.
type ProjectPatch struct {
	Name          *string
	SetServices   bool
	Services      []string
	SetExtensions bool
	Extensions    map[string][]string
}

// Agent is one agent's identity. The token itself is never stored.
type Agent struct {
	Slug      string
	Role      string
	Revoked   bool
	CreatedAt time.Time
}

// Engagement is the fact that an agent works on a task of a project.
type Engagement struct {
	Agent     string
	Task      string
	Project   string
	Status    string
	Owned     bool // the agent lives in a container
	Ended     bool
	StartedAt time.Time
	EndedAt   time.Time // zero while it goes on
}

// Outgoing is an event that was stored with its engagement and must be published; publishing is idempotent by its ID.
type Outgoing struct {
	EventID string
	Event   json.RawMessage // the CloudEvents JSON
}

// Projects stores projects. Every write validates and normalizes against the catalog: *InvalidError, nothing stored.
// A name that is empty, or blank, is the slug; a longer one has at most 200 characters and no control characters.
type Projects interface {
	Projects(ctx context.Context) ([]Project, error) // by slug
	Project(ctx context.Context, slug string) (Project, error)
	// PutProject makes or replaces a project; created says which.
	PutProject(ctx context.Context, p Project) (stored Project, created bool, err error)
	PatchProject(ctx context.Context, slug string, patch ProjectPatch) (Project, error)
	DeleteProject(ctx context.Context, slug string) error
}

// Agents stores identities; a token comes in only as its SHA-256 sum.
type Agents interface {
	Agents(ctx context.Context) ([]Agent, error) // by slug
	// Agent reads one, revoked or not.
	Agent(ctx context.Context, slug string) (Agent, error)
	// CreateAgent fails with ErrTaken for a slug in use, also a revoked one's, and *InvalidError for a bad slug or role.
	CreateAgent(ctx context.Context, slug, role string, tokenHash []byte) (Agent, error)
	// SetToken replaces the token; a revoked agent lives again.
	SetToken(ctx context.Context, slug string, tokenHash []byte) (Agent, error)
	RevokeAgent(ctx context.Context, slug string) error
	// AgentByToken gives ErrNotFound for an unknown or revoked token.
	AgentByToken(ctx context.Context, tokenHash []byte) (Agent, error)
}

// Engagements stores who works on what, and the events that say so, in one transaction.
type Engagements interface {
	// StartWork makes this the agent's engagement and owes the event; a known event ID changes nothing, and one that was
	// published is ErrPublished. The task and
	// project of the engagement that goes on are a change of its status (Owned stays once true); any other ends it and
	// begins anew. Ended and EndedAt are ignored; StartedAt zero is now. The project need not exist, or be named.
	StartWork(ctx context.Context, e Engagement, out Outgoing) error
	// EndWork ends the agent's engagement if task is empty or the engagement's, and owes the event in any case;
	// a known event ID changes nothing, and one that was published is ErrPublished. It returns the engagement as it stands
	// afterwards (zero when there is none).
	EndWork(ctx context.Context, agent, task string, out Outgoing) (Engagement, error)
	// Engagement gives the latest engagement, ended or not; ErrNotFound when the agent never had one.
	Engagement(ctx context.Context, agent string) (Engagement, error)
	// SetOwned notes that a container owns the agent's engagement, if it is still this one; otherwise it changes nothing.
	SetOwned(ctx context.Context, agent, task, project string) error
}

// Work is who works on what, and the events that say so.
type Work interface {
	Engagements
	Outbox
}

// Outbox holds the events that Engagements owes until they are published, and for a while longer: an ID must be known.
type Outbox interface {
	// OwedBefore lists the events of this event's agent that are owed and were stored before it, oldest first: they are to be
	// published before it. An unknown ID has none.
	OwedBefore(ctx context.Context, eventID string) ([]Outgoing, error)
	// Published marks an owed event as published, and with it all that its agent's were owed before it: to publish one of them
	// now, to a Redis that has forgotten it, would bring back work that is over. An unknown ID is no error.
	Published(ctx context.Context, eventID string) error
	// Unpublished lists owed events older than age, oldest first, at most limit; limit 0, or above 1000, is 1000.
	Unpublished(ctx context.Context, age time.Duration, limit int) ([]Outgoing, error)
}

// Flags stores run-time switches.
type Flags interface {
	// Flag gives what is stored; a flag that nobody ever set is the zero Flag.
	Flag(ctx context.Context, name string) (Flag, error)
	// SetFlag stores a value, nil for none, and gives what is stored now.
	// The name is 1 to 200 characters.
	SetFlag(ctx context.Context, name string, value *bool) (Flag, error)
}

// Flag is a run-time switch as it stood at a revision.
type Flag struct {
	Value    *bool // nil: none is set, the environment's counts
	Revision int64 // grows with each change of the flag, so that a copy elsewhere is never overwritten by an earlier one; 0: never set
}

// Request is one row of the history: who asked what, when, what came of it.
type Request struct {
	ID         string // request ID
	Agent      string
	Role       string
	Task       string
	Project    string
	Host       string
	Worker     string
	Services   []string // as asked; nil = the whole set
	Extensions map[string][]string
	Outcome    string // "ok", "refused", "failed", "stale", "late"
	Guard      int    // the guard that refused, -1 when none did
	Message    string // of a refusal or failure; never a secret
	Containers []RequestContainer
	AskedAt    time.Time
	DoneAt     time.Time
	// Phases is milliseconds by phase: "guards", "pull", "memory", "queue", "create", "probe", "activate", "record", "total".
	Phases map[string]int64
}

// RequestContainer is one container that a request was answered with or made.
type RequestContainer struct {
	ID      string `json:"id"`
	Engine  string `json:"engine"`
	Outcome string `json:"outcome"`
	Task    string `json:"task"`
	Project string `json:"project"`
	Owner   string `json:"owner"`
	Born    string `json:"born"`
	Epoch   string `json:"epoch"`
}

// Claim is what a container from a pool was claimed for. It is written before the container is recorded, so that adoption can
// tell its tenancy when Redis has forgotten it.
type Claim struct {
	ContainerID string
	RequestID   string // of the request that it was claimed for
	Agent       string
	Engine      string
	Host        string
	Task        string
	Project     string
	Owner       string // "<container id>@<started at>" or "lease"
	Born        string // stream ID of the request
	Epoch       string // of the run
	ClaimedAt   time.Time
}

// HistoryFilter narrows and pages History; zero fields do not narrow.
type HistoryFilter struct {
	Agent, Project, Task, Outcome string
	Before                        string // the ID of the last row of the page before (request IDs are UUIDv7: they sort by time)
	Limit                         int    // 1 to 500; 0 = 50; any other is an *InvalidError
}

// History stores what was asked and what came of it.
type History interface {
	// RecordRequests writes rows, all or none; a row of a known ID is replaced. Text that is not UTF-8, or holds a NUL,
	// is stored with U+FFFD in its place; AskedAt zero is now.
	RecordRequests(ctx context.Context, rows []Request) error
	// Requests lists newest first.
	Requests(ctx context.Context, f HistoryFilter) ([]Request, error)
	// RecordClaim writes what a container was claimed for, once: of several claims of one container the first stands, and
	// one of another agent or epoch is ErrClaimed; the same one again is no error. Text is kept as RecordRequests keeps it; ClaimedAt zero is now. *InvalidError without a
	// container ID.
	RecordClaim(ctx context.Context, c Claim) error
	// Claims finds what these containers were claimed for, by container ID; what nobody claimed is not in it.
	Claims(ctx context.Context, containerIDs []string) (map[string]Claim, error)
	// PruneRequests removes rows done before this time (a row that was never done goes by AskedAt) and returns how many.
	// Claims older than it go with them. Events published before it, and more than a day ago, are forgotten too: their IDs are no longer known.
	PruneRequests(ctx context.Context, before time.Time) (int64, error)
}

// Connection is a store's own life.
type Connection interface {
	// Ping is nil when the store answers.
	Ping(ctx context.Context) error
	// Close lets go of connections; it waits for calls under way.
	Close()
}

// Store is everything; who uses it declares the part it needs.
type Store interface {
	Projects
	Agents
	Work
	Flags
	History
	Connection
}
