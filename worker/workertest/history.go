package workertest

import (
	"fmt"
	"slices"

	"github.com/roboco/sandboxd/state"
)

// Violation is one breach of the protocol that a check has seen.
type Violation struct {
	Check  string // "H2", "R1", ...
	Detail string
}

// Asked is what the harness knows of a request. Empty fields are not judged.
type Asked struct {
	Task  string // under which it was published
	Owner string // the agent's container (or the lease) when it was published
}

// recording is one container's time in a record.
type recording struct {
	id, agent, engine string
	features          []string
	first, last       int64 // recorded first and last
	until             int64 // last sure moment of the record's life
	next              int64 // superseded at; 0 = not
}

type slot struct{ agent, engine string }

// taken is a claim of a container.
type taken struct{ agent, id string }

type ended struct {
	id, typ string
	at      int64
}

// Worked says what an agent works on from a moment (microseconds since 1970) on; "" is nothing.
type Worked struct {
	Task string
	At   int64
}

// Past is the audit stream as far as it has been read, and what is known beside it. A check reads it and does not change it.
type Past struct {
	Truth Truth
	Asked map[string]Asked // by request ID
	TTL   int64            // of a record, microseconds
	Tasks map[string][]Worked
	// Stored is what the durable store knows of claims, by container ID.
	Stored map[string]state.Claim

	recs    map[string]*recording // by container ID
	current map[slot]*recording   // what is recorded now
	ends    map[string][]ended    // by agent
	left    map[string][]ended    // by agent: owners that left, in id; who noticed, in typ
	newest  map[string]string     // by agent: the watermark of this life of Redis
	epochs  map[string]string     // by agent: the last epoch seen to act in this life of Redis
	revoked map[string]int64      // by container ID
	states  map[string]string     // by request ID: the first terminal state of this life of Redis
	waiting map[string]Mark       // by request ID: published in this life of Redis, and not answered yet
	known   map[string]bool       // request IDs that were published in this life of Redis
	claims  map[string]Mark       // by container ID: the claim that this life of Redis knows
	retired map[string]bool       // container IDs that were retired in this life of Redis
	claimed map[taken]bool        // what was ever claimed by whom
	used    map[string]string     // by container ID: the agent that it was recorded for or handed to, ever
	flushed int64                 // when Redis was last emptied; 0 = never

	counts map[string]int
	found  []Violation
}

// bad notes a violation.
func (p *Past) bad(check, format string, args ...any) {
	p.found = append(p.found, Violation{Check: check, Detail: fmt.Sprintf(format, args...)})
}

// Judge runs every check over the marks and gives what they found, and how many marks there were of each kind.
func (p *Past) Judge(marks []Mark) (found []Violation, counts map[string]int) {
	p.recs, p.current = map[string]*recording{}, map[slot]*recording{}
	p.ends, p.left, p.revoked = map[string][]ended{}, map[string][]ended{}, map[string]int64{}
	p.claimed, p.used = map[taken]bool{}, map[string]string{}
	p.Truth.Attribute(marks, p.Stored)
	p.counts = map[string]int{}
	p.forget(0)
	for _, m := range marks {
		p.lapse(m)
		for _, check := range markChecks() {
			check(p, m)
		}
		p.apply(m)
	}
	for _, check := range endChecks() {
		check(p)
	}
	return p.found, p.counts
}

// markChecks look at one mark before it is applied; endChecks at the whole past.
func markChecks() []func(*Past, Mark) {
	return []func(*Past, Mark){
		checkWatermarkGrows, checkLeaseHolder, checkEpochGrows,
		checkRecordedAlive, checkRecordedAfterEnd, checkSuperseded, checkStruck,
		checkOneReply, checkReplyRecorded, checkReplyYoung, checkReplyTask, checkReplyAlive,
		checkPublishedOnce, checkRecordedOwner, checkReplyOwner, checkLeft, checkStale, checkNotRecordedWhenRevoked,
		checkClaimedOnce, checkClaimedReady, checkClaimedUnused, checkStockedUnseen, checkRecordedClaimed,
	}
}

func endChecks() []func(*Past) { return []func(*Past){checkRemovals, checkAllAnswered} }

// forget is what a flush does to Redis.
func (p *Past) forget(at int64) {
	p.newest, p.epochs, p.states = map[string]string{}, map[string]string{}, map[string]string{}
	p.waiting, p.known = map[string]Mark{}, map[string]bool{}
	p.claims, p.retired = map[string]Mark{}, map[string]bool{}
	p.current = map[slot]*recording{}
	p.flushed = at
}

// lapse drops what the TTL has surely ended by the time of this mark.
func (p *Past) lapse(m Mark) {
	for s, r := range p.current {
		if m.At > r.until+slack {
			delete(p.current, s)
		}
	}
}

// apply takes a mark into the past.
func (p *Past) apply(m Mark) {
	p.counts[string(m.Kind)]++
	switch m.Kind {
	case MarkFlush:
		p.forget(m.At)
	case MarkEnd:
		p.ends[m.Agent] = append(p.ends[m.Agent], ended{id: m.ID, typ: m.Type, at: m.At})
		p.newest[m.Agent] = m.ID
		p.unrecord(m.Agent)
	case MarkLeave:
		p.left[m.Agent] = append(p.left[m.Agent], ended{id: m.Owner, typ: m.Type, at: m.At})
		p.counts["leave seen by "+m.Type]++
		p.unrecord(m.Agent)
	case MarkBeat:
		p.epochs[m.Agent] = m.Epoch
	case MarkStrike:
		delete(p.current, slot{m.Agent, m.Engine})
	case MarkRevoke:
		p.revoke(m)
	case MarkRecord, MarkAdopt:
		p.record(m)
	case MarkRequest:
		p.waiting[m.Request], p.known[m.Request] = m, true
	case MarkReply:
		p.reply(m)
	case MarkClaim:
		p.claims[m.Container], p.claimed[taken{m.Agent, m.Container}] = m, true
	case MarkRetire:
		p.retired[m.Container] = true
	case MarkStock: // nothing follows from it
	}
}

// revoke takes a verdict into the past. One over a container of a pool counts for who asked: a claim that the durable store does
// not know may be another's.
func (p *Past) revoke(m Mark) {
	l := p.Truth.Lives[m.Container]
	if p.revoked[m.Container] == 0 && (!l.Pooled || l.Agent == m.Agent) {
		p.revoked[m.Container] = m.At
	}
}

func (p *Past) unrecord(agent string) {
	for s := range p.current {
		if s.agent == agent {
			delete(p.current, s)
		}
	}
}

// record takes a record or an adoption into the past.
func (p *Past) record(m Mark) {
	if m.Epoch != "" {
		p.epochs[m.Agent] = m.Epoch
	}
	s := slot{m.Agent, m.Engine}
	if old := p.current[s]; old != nil && old.id != m.Container {
		old.next = m.At
	}
	if p.flushed > 0 { // the one that bears the name supersedes the one that was renamed away for it
		for id, r := range p.recs {
			if r.next == 0 && id != m.Container && r.agent == m.Agent && r.engine == m.Engine && p.current[s] != r {
				r.next = m.At
			}
		}
	}
	r := p.recs[m.Container]
	if r == nil {
		r = &recording{id: m.Container, agent: m.Agent, engine: m.Engine, first: m.At}
		p.recs[m.Container] = r
	}
	r.features, r.last, r.next = m.Features, m.At, 0
	p.used[m.Container] = m.Agent
	if m.Kind == MarkAdopt && p.Truth.Lives[m.Container].Pooled {
		p.claims[m.Container] = m
	}
	p.current[s] = r
	p.slide(m.Agent, m.At)
}

func (p *Past) reply(m Mark) {
	if p.states[m.Request] == "" {
		p.states[m.Request] = m.State
	}
	delete(p.waiting, m.Request)
	p.counts["reply "+m.State]++
	if m.State == "ok" && len(m.Handed) > 0 {
		p.slide(m.Agent, m.At)
		for _, id := range m.Handed {
			p.used[id] = m.Agent
		}
	}
}

// slide gives an agent's record its whole life again.
func (p *Past) slide(agent string, at int64) {
	for s, r := range p.current {
		if s.agent == agent {
			r.until = max(r.until, at+p.TTL)
		}
	}
}

// taskAt is what an agent worked on at a time, as the durable store had it; known is false when nothing is noted.
func (p *Past) taskAt(agent string, at int64) (task string, known bool) {
	for _, t := range p.Tasks[agent] {
		if t.At <= at {
			task, known = t.Task, true
		}
	}
	return task, known
}

// sortedBy gives map entries in a fixed order, so that two judgements of one past read alike.
func sortedBy[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
