package worker

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/state"
)

// Store is what a worker needs of the durable store.
type Store interface {
	state.Work
	state.Flags
	state.History
	ProjectReader
}

// Config of a worker. Zero fields have the defaults given.
type Config struct {
	Bus     *events.Bus
	Store   Store
	Engines engines.Registry
	Runtime Runtime
	// Roles are those that carry request_sandbox.
	Roles []string

	Name string // consumer name, unique per process life; host name and a random part
	Cell string // "sandbox"
	// Project is the compose project whose labels containers carry; empty for none.
	ComposeProject string

	Network    string // "roboco_default"
	Memory     int64  // bytes per container; 512 MiB
	NanoCPUs   int64  // 1e9
	Pids       int64  // 256
	Loopback   bool   // credentials name 127.0.0.1 and a published port
	ForceLease bool   // every agent is owned by lease
	Enabled    bool   // the environment's master switch; the run-time value wins

	// Unprimed: every engine starts plainly, and no image is derived.
	Unprimed bool

	// Slots are the entries that are read and decided at once, and as many provisions besides, at work or in a line; 32.
	Slots int
	// Creates are the containers that are made at once; 0 is twice the processors of the engine's host, and at least 6.
	Creates int
	// MemoryTotal is what the limits of all sandboxes on the host may come to, in bytes; 0 is what the engine reports.
	MemoryTotal int64
	// QueueTimeout is how long a request stands in one line at most; 2 min.
	QueueTimeout time.Duration

	// Pool is how many ready containers the host keeps, by engine; none is kept of others.
	Pool map[string]PoolSize
	// PoolTick is the time between two looks of whoever keeps the host's pools, unless something wakes it; 1 s.
	PoolTick time.Duration
	// GiveWay is how long the making of a ready container waits for requests to have what they are making; 30 s.
	GiveWay time.Duration

	Grace           time.Duration // the janitor leaves younger containers alone; 180 s
	JanitorInterval time.Duration // 30 s
	StopGrace       time.Duration // between stop signal and removal; 300 ms
	Drain           time.Duration // 30 s
	StartWithin     time.Duration // an engine that does not answer at the start is waited for; 15 s
	Beat            time.Duration // between two beats of a lease; 1 s
	Retain          time.Duration // history rows older are pruned; 30 days

	Log      zerolog.Logger
	Register prometheus.Registerer // nil: metrics are kept but not exposed
}
