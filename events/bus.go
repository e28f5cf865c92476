package events

import (
	"context"
	"encoding/json"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
)

// Config of a Bus. Zero fields have the defaults given.
type Config struct {
	Cell string // one independent system; default "sandbox"

	Lease     time.Duration // a lease lives this long without a beat; 15 s
	ClaimIdle time.Duration // an entry idle this long may be claimed by another consumer; 20 s, more than Lease
	Park      time.Duration // a parked entry is looked at again after this long; 250 ms
	TTL       time.Duration // of a record, sliding; 12 h
	ReplyTTL  time.Duration // of a reply stream, from its last entry; 1 h
	Remember  time.Duration // of request hashes and published event IDs; 24 h
	Accept    time.Duration // a request that nobody accepted or queued by then is late; 10 s

	Attempts  int   // runs of one request before it is exhausted; 5
	StreamCap int64 // requests refused while the work stream is longer; 10,000
	AgentCap  int64 // requests of one agent that wait at once; 64

	// Audit appends every record, end, reply, revocation to {cell}:audit, for the history checks.
	Audit bool
	Log   zerolog.Logger
}

// Bus is the connection of one process to Redis. All methods are safe for concurrent use; errors of the connection
// are ErrUnavailable.
type Bus struct{}

// New makes a bus over two clients of one Redis: rdb for calls, blocking for reads that wait.
func New(_, _ redis.UniversalClient, _ Config) *Bus { panic("unbuilt") }

// Check asks whether this Redis can be relied on: version, eviction policy (an error), persistence (a warning).
// What a server cannot tell (the embedded one) is skipped. It makes the consumer group where it is absent.
func (b *Bus) Check(_ context.Context) (warnings []string, err error) { panic("unbuilt") }

// Ping is nil when Redis answers.
func (b *Bus) Ping(_ context.Context) error { panic("unbuilt") }

// Published is what became of a publication.
type Published struct {
	// StreamID is the event's time; of the first publication when the event was known.
	StreamID string
	// Moot: an agent.stopped of an owner that is not the present one (nothing was stored), or a work.ended of another task.
	Moot  bool
	Known bool // this event ID was published before
}

// Publish stores an event; it takes effect at once. Only sandbox.requested and logs.requested can be refused (ErrFull).
func (b *Bus) Publish(_ context.Context, _ Event) (Published, error) { panic("unbuilt") }

// Delivery is one entry of the work stream in the hands of this consumer.
type Delivery struct {
	Entry string // stream entry ID: the event's time
	Event Event
	// Ends: the event ended a sandbox when it was published; containers may be left to remove.
	Ends bool
	// Foreign: it came by plain XADD and has had no effect yet: publish it anew under its own event ID, then Finish.
	Foreign  bool
	Deadline time.Time // of a request: by then it must be accepted or queued
	consumer string
}

// Handler works on one delivery. It must end it by Answer, Settle or Finish, or leave it to be delivered again.
// ctx ends when the consumer has drained for too long.
type Handler func(ctx context.Context, d Delivery)

// ConsumeOptions of Consume.
type ConsumeOptions struct {
	Name  string        // of the consumer; unique per process life
	Slots int           // handlers at once; a slot is taken before the stream is read
	Drain time.Duration // handlers under way may go on this long after ctx ends; what is left is handed back
}

// Consume reads the work stream, new entries and those left idle by others, until ctx ends, then drains. It
// recreates the consumer group after a flush, and dead-letters what cannot be decoded. It returns nil after a drain.
func (b *Bus) Consume(_ context.Context, _ ConsumeOptions, _ Handler) error { panic("unbuilt") }

// Agent reads an agent's hash.
func (b *Bus) Agent(_ context.Context, slug string) (AgentState, error) { panic("unbuilt") }

// Verdict is what begin decided.
type Verdict string

// The verdicts of Begin.
const (
	Lost  Verdict = "LOST"  // the entry is another consumer's by now: drop it
	Done  Verdict = "DONE"  // answered and finished here
	Again Verdict = "AGAIN" // what the guards saw has changed: look again
	Busy  Verdict = "BUSY"  // another run is under way: the entry is parked, drop it
	Hit   Verdict = "HIT"   // the record covers what is asked: check the containers, then AnswerHit
	Run   Verdict = "RUN"   // a lease is held under Epoch: provision
)

// BeginArgs is what the guards saw.
type BeginArgs struct {
	Asked, Set []Want   // what this request must be answered with; the whole opted set with the features to have
	Seen       Tenancy  // the tenancy the guards saw alive
	HashOwner  string   // the hash's owner as it was read before the look at the engine
	Epoch      string   // the epoch this run already holds, or empty
	Gone       []string // container IDs found dead
	Moved      []string // container IDs found alive under another name
}

// Begun is the answer of Begin. Record is the whole record as it stands (without what was struck).
type Begun struct {
	Verdict Verdict
	Born    string // the request's time: what is made for it is born then
	Epoch   string
	Record  map[string]Entry
	// Answered: a terminal reply stands already; only what the record lacks of the set is to be made.
	Answered bool
}

// Begin opens a request that has passed the guards.
func (b *Bus) Begin(_ context.Context, _ Delivery, _ BeginArgs) (Begun, error) { panic("unbuilt") }

// Refuse answers with a refusal and finishes the entry. A request older than the watermark is answered as stale.
// It reports false when the entry is another consumer's by now.
func (b *Bus) Refuse(_ context.Context, _ Delivery, _ State, _ Refusal, task string) (bool, error) {
	panic("unbuilt")
}

// AnswerHit answers from the record, whose containers (engine -> container ID) were checked just now, and finishes
// the entry. Done, Lost, or Again when record or watermark have moved on.
func (b *Bus) AnswerHit(_ context.Context, _ Delivery, asked []Want, checked map[string]string) (Verdict, error) {
	panic("unbuilt")
}

// AnswerBody answers something other than a request for a sandbox, and finishes the entry.
func (b *Bus) AnswerBody(_ context.Context, _ Delivery, body json.RawMessage) (bool, error) {
	panic("unbuilt")
}

// Fencing is what a lease holder is told.
type Fencing string

// The answers to Beat, Record and Settle.
const (
	Held    Fencing = "OK"
	Fenced  Fencing = "FENCED"  // another epoch holds the lease, or none: go back to the guards
	Revoked Fencing = "REVOKED" // the container may not be recorded any more: make another
	Lapsed  Fencing = "AGAIN"   // the record lapsed under the run: go back to the guards
)

// Beat extends the lease and keeps the entry ours. Held or Fenced.
func (b *Bus) Beat(_ context.Context, _ Delivery, epoch string) (Fencing, error) { panic("unbuilt") }

// Tell adds a progress entry, under the lease only; it never fails a run.
func (b *Bus) Tell(_ context.Context, _ Delivery, epoch string, _ Progress) error { panic("unbuilt") }

// Record records one engine under the lease; with the last one asked for it writes the terminal reply too.
// Held, Fenced or Revoked.
func (b *Bus) Record(_ context.Context, _ Delivery, epoch, engine string, _ Entry, _ Outcome, reason string, asked []Want) (Fencing, error) {
	panic("unbuilt")
}

// Settle ends a run: the lease is released, the entry finished. failure is nil when nothing that was asked for failed.
// Held (done), Fenced or Lapsed.
func (b *Bus) Settle(_ context.Context, _ Delivery, epoch string, failure *Refusal, asked []Want) (Fencing, error) {
	panic("unbuilt")
}

// Found is a container that somebody came upon, as it stands now.
type Found struct {
	Slug, Engine, ID string
	Epoch, Born      string
	Tenancy          Tenancy // of its labels, or its claim
	FirstLife        bool
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
)

// Revoke decides whether a container may be removed; ownEpoch is the caller's, or empty.
func (b *Bus) Revoke(_ context.Context, _ Found, ownEpoch string, _ Present) (Fate, error) {
	panic("unbuilt")
}

// Adopt records a container that Redis has forgotten.
func (b *Bus) Adopt(_ context.Context, _ Found, _ Present, _ Entry) (Fate, error) { panic("unbuilt") }

// Finish ends an entry that needs no reply. It reports false when the entry is another consumer's by now.
func (b *Bus) Finish(_ context.Context, _ Delivery) (bool, error) { panic("unbuilt") }

// DeadLetter ends an entry and keeps it, with the reason, in the dead letters.
func (b *Bus) DeadLetter(_ context.Context, _ Delivery, reason string) (bool, error) {
	panic("unbuilt")
}

// SetOwned marks the agent's engagement as owned by a container, if it is still this one.
func (b *Bus) SetOwned(_ context.Context, slug, task, project string) error { panic("unbuilt") }

// Sandbox reads an agent's record, and with slide gives it its whole TTL again. ErrExpired when there is none.
func (b *Bus) Sandbox(_ context.Context, slug string, slide bool) (Record, error) { panic("unbuilt") }

// Sandboxes reads every record.
func (b *Bus) Sandboxes(_ context.Context) ([]Record, error) { panic("unbuilt") }

// Owners lists the slugs of every agent that Redis knows a sandbox owner for, with that owner (for the janitor).
func (b *Bus) Owners(_ context.Context) (map[string]string, error) { panic("unbuilt") }

// Follow calls each with every entry of a reply stream after the given one ("" = from the start), progress first, the
// terminal one last, and returns after it; or ctx's error. gateway is this process's inbox name; see RunInbox.
func (b *Bus) Follow(_ context.Context, slug, requestID, after string, each func(Reply) error) error {
	panic("unbuilt")
}

// Replies reads what stands in a reply stream after the given entry, without waiting. ErrExpired when the stream is
// not there.
func (b *Bus) Replies(_ context.Context, slug, requestID, after string) ([]Reply, error) {
	panic("unbuilt")
}

// RunInbox reads the notices of one gateway for all its followers, until ctx ends: Follow then waits without a
// connection of its own.
func (b *Bus) RunInbox(_ context.Context, gateway string) error { panic("unbuilt") }

// ReplyStream is the key an agent with Redis access may read its replies from.
func (b *Bus) ReplyStream(slug, requestID string) string { panic("unbuilt") }

// Switch is the mirrored run-time value of the master switch.
type Switch string

// The switch's values.
const (
	SwitchOn      Switch = "1"
	SwitchOff     Switch = "0"
	SwitchUnset   Switch = "-" // none set at run time: the environment's counts
	SwitchMissing Switch = ""  // not mirrored: read the durable store and write it back
)

// MasterSwitch reads the mirror.
func (b *Bus) MasterSwitch(_ context.Context) (Switch, error) { panic("unbuilt") }

// SetMasterSwitch writes the mirror.
func (b *Bus) SetMasterSwitch(_ context.Context, _ Switch) error { panic("unbuilt") }

// SweepConsumers removes consumers of dead processes that hold nothing, and returns how many.
func (b *Bus) SweepConsumers(_ context.Context) (int, error) { panic("unbuilt") }

// Gauges are the bus's own figures.
type Gauges struct {
	StreamLength, Pending, DeadLetters, Sandboxes int64
	OldestPending                                 time.Duration
}

// Gauges reads them.
func (b *Bus) Gauges(_ context.Context) (Gauges, error) { panic("unbuilt") }
