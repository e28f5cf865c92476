package events

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
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

	// Line is how long an entry that waits for a worker with room is left alone between two looks; 1 s. Patience is how
	// long it waits at all, before the worker is told to refuse it; 2 min.
	Line, Patience time.Duration

	Attempts  int   // runs of one request before it is exhausted; 5
	StreamCap int64 // requests refused while the work stream is longer; 10,000
	AgentCap  int64 // requests of one agent that wait at once; 64
	Max       int64 // agents that hold a sandbox at once, over all workers of the cell; 0 is no limit

	// Sealer keeps credentials unreadable in Redis, in records and in replies; nil leaves them readable.
	Sealer Sealer

	// Audit appends every record, end, reply, revocation to {cell}:audit, for the history checks. It is never trimmed:
	// for tests alone.
	Audit bool
	Log   zerolog.Logger
}

func (c Config) withDefaults() Config {
	def(&c.Cell, "sandbox")
	def(&c.Lease, 15*time.Second)
	def(&c.ClaimIdle, 20*time.Second)
	def(&c.Park, 250*time.Millisecond)
	def(&c.TTL, 12*time.Hour)
	def(&c.ReplyTTL, time.Hour)
	def(&c.Remember, 24*time.Hour)
	def(&c.Accept, 10*time.Second)
	def(&c.Line, time.Second)
	def(&c.Patience, 2*time.Minute)
	def(&c.Attempts, 5)
	def(&c.StreamCap, 10_000)
	def(&c.AgentCap, 64)
	return c
}

// def gives a field its default when it is zero.
func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Bus is the connection of one process to Redis. All methods are safe for concurrent use; errors of the connection
// are ErrUnavailable.
type Bus struct {
	calls    redis.UniversalClient // for everything that answers at once
	blocking redis.UniversalClient // for reads that wait: they would starve the pool of the other
	cfg      Config
	settings string // of the cell, as the scripts read them
	scripts  scripts
	inbox    inbox
}

// New makes a bus over two clients of one Redis: rdb for calls, blocking for reads that wait.
func New(rdb, blocking redis.UniversalClient, cfg Config) *Bus {
	cfg = cfg.withDefaults()
	b := &Bus{calls: rdb, blocking: blocking, cfg: cfg, scripts: load(cfg.Audit)}
	text, err := json.Marshal(settings{
		Group: group, Parked: parked, Lined: lined, Inbox: b.inboxKey(""), Claim: b.claimKey(""),
		Lease: cfg.Lease.Milliseconds(), ClaimIdle: cfg.ClaimIdle.Milliseconds(), Park: cfg.Park.Milliseconds(),
		TTL: cfg.TTL.Milliseconds(), ReplyTTL: cfg.ReplyTTL.Milliseconds(), Remember: cfg.Remember.Milliseconds(),
		Accept: cfg.Accept.Milliseconds(), Attempts: cfg.Attempts, StreamCap: cfg.StreamCap, AgentCap: cfg.AgentCap,
		Line: cfg.Line.Milliseconds(), Patience: cfg.Patience.Milliseconds(), Max: cfg.Max,
	})
	if err != nil {
		panic(err) // a struct of numbers and strings is always written
	}
	b.settings = string(text)
	return b
}

// Ping is nil when Redis answers.
func (b *Bus) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	return failed("ping redis", b.calls.Ping(ctx).Err())
}

// Check asks whether this Redis can be relied on: version, eviction policy (an error), persistence (a warning).
// What a server cannot tell (the embedded one) is skipped. It makes the consumer group where it is absent.
func (b *Bus) Check(ctx context.Context) (warnings []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	text, err := b.calls.Info(ctx).Result()
	if err != nil && unavailable(err) {
		return nil, failed("ask redis what it is", err)
	}
	if err != nil && strings.HasPrefix(err.Error(), "NOPERM") {
		warnings = append(warnings, "redis does not let this user ask what it is (INFO): its version, eviction policy and persistence are not checked")
	}
	info := parseInfo(text)
	if v := info["redis_version"]; v != "" && older(v, 7) {
		return nil, fmt.Errorf("redis is version %s: 7.0 or later is needed", v)
	}
	if p := info["maxmemory_policy"]; p != "" && p != "noeviction" {
		return nil, fmt.Errorf("redis evicts keys (maxmemory-policy %s): noeviction is needed, for an evicted lease or group is lost work", p)
	}
	if info["aof_enabled"] == "0" {
		warnings = append(warnings, "redis keeps no append-only file: a restart of it loses events that wait and credentials")
	}
	return warnings, b.ensureGroup(ctx)
}

// ensureGroup makes the consumer group, reading from the first entry on, and the stream with it.
func (b *Bus) ensureGroup(ctx context.Context) error {
	err := b.calls.XGroupCreateMkStream(ctx, b.stream(), group, "0").Err()
	if err != nil && strings.HasPrefix(err.Error(), "BUSYGROUP") {
		return nil
	}
	return failed("make the consumer group", err)
}

// parseInfo reads the name:value lines of INFO.
func parseInfo(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			out[name] = value
		}
	}
	return out
}

// older says that a version's first number is less than major.
func older(version string, major int) bool {
	var n int
	if _, err := fmt.Sscanf(version, "%d.", &n); err != nil {
		return false
	}
	return n < major
}

// Agent reads an agent's hash.
func (b *Bus) Agent(ctx context.Context, slug string) (AgentState, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	doing := "read what is known of agent " + slug
	pipe := b.calls.Pipeline()
	read, clock := pipe.HGetAll(ctx, b.agentKey(slug)), pipe.Time(ctx)
	if _, err := pipe.Exec(ctx); err != nil {
		return AgentState{}, failed(doing, err)
	}
	return agentState(read.Val(), clock.Val()), nil
}

// agentState reads an agent's hash, as it stands at this time.
func agentState(h map[string]string, now time.Time) AgentState {
	a := AgentState{
		Task: h["task"], Project: h["project"], WorkEnded: h["over"] != "", Owned: h["owned"] != "",
		Owner: h["owner"], Ended: h["ended"], Epoch: h["epoch"],
	}
	a.Known = a.Task != "" || a.WorkEnded
	if h["lease"] != "" {
		a.Leased = millis(h["until"]).After(now)
	}
	if h["hosts"] != "" {
		a.Hosts = strings.Split(h["hosts"], ",")
	}
	return a
}

// SetOwned marks the agent's engagement as owned by a container, if it is still this one.
func (b *Bus) SetOwned(ctx context.Context, slug, task, project string) error {
	_, err := b.number(ctx, "note that "+slug+" lives in a container", b.scripts.own, b.keys(slug, "", ""), struct {
		Slug    string `json:"slug"`
		Task    string `json:"task"`
		Project string `json:"project"`
	}{slug, task, project})
	return err
}
