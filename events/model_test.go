package events_test

import (
	"slices"
	"strconv"

	"github.com/roboco/sandboxd/events"
)

// machine is the protocol once more, as a pure state machine of one agent: what each transition must answer, and what must
// stand in Redis afterwards. It knows no Redis and no clock; whatever the server chooses (stream IDs, epochs, the time a
// hash came to be) is told to it.
type machine struct {
	known  bool   // the hash says since when it is there
	since  uint64 // µs
	last   string // the last epoch
	lease  string // the epoch that holds it, or empty
	live   bool   // the lease has not run out
	ended  string // the watermark, a stream ID
	work   work
	record map[string]events.Entry
	fate   map[string]string
	asked  map[string]*asked
	stream map[string]string // entries: stream ID -> the consumer that holds it, or empty while nobody has read it
	said   map[string]string // event ID -> stream ID, or moot
	wait   map[string]bool   // stream IDs of requests that wait
	dead   int               // dead letters
	pools  pools
}

// work is what the hash says of the engagement and its owner.
type work struct {
	task, project, owner string
	owned, over          bool
}

// asked is one request.
type asked struct {
	born   string
	state  events.State
	tries  int
	seen   bool              // accepted or queued
	shown  bool              // its reply stream holds a terminal entry
	handed map[string]string // engine -> container ID, in that entry
}

const (
	moot     = "0-0"
	parked   = "parked"
	attempts = 5
)

func newMachine() *machine {
	return &machine{
		record: map[string]events.Entry{}, fate: map[string]string{}, asked: map[string]*asked{},
		stream: map[string]string{}, said: map[string]string{}, wait: map[string]bool{}, pools: newPools(),
	}
}

func (m *machine) after(x string) bool { return m.ended == "" || olderID(m.ended, x) }

func (m *machine) leased() bool { return m.lease != "" && m.live }

func (m *machine) request(rid, entry string) *asked {
	if m.asked[rid] == nil {
		m.asked[rid] = &asked{}
	}
	if q := m.asked[rid]; q.born == "" {
		q.born = entry
	}
	return m.asked[rid]
}

func (m *machine) covers(wants []events.Want, except []string) bool {
	for _, w := range wants {
		r, ok := m.record[w.Engine]
		if !ok || slices.Contains(except, r.ID) {
			return false
		}
		for _, f := range w.Features {
			if !slices.Contains(r.Features, f) {
				return false
			}
		}
	}
	return true
}

// say is a terminal reply, if none stands; one that has lapsed comes back without credentials.
func (m *machine) say(q *asked, s events.State, handed []events.Want) {
	if q.state != "" && q.shown {
		return
	}
	first := q.state == ""
	q.shown, q.handed = true, nil
	if !first {
		return
	}
	q.state = s
	if handed != nil {
		q.handed = map[string]string{}
		for _, w := range handed {
			q.handed[w.Engine] = m.record[w.Engine].ID
		}
	}
}

func (m *machine) finish(entry string) {
	delete(m.stream, entry)
	delete(m.wait, entry)
}

// drop ends the sandbox.
func (m *machine) drop() {
	m.lease = ""
	clear(m.record)
	for _, q := range m.asked {
		q.handed = nil
	}
}

func (m *machine) leave() {
	m.work.owner = ""
	m.drop()
}

// publication is what publish is told.
type publication struct {
	kind                events.Type
	id, rid             string
	task, project, owns string // owns: the owner that stopped, or "container"
}

// publish gives the stream ID that must be answered, moot or x, which the server chose.
func (m *machine) publish(p publication, x string) string {
	stopped := p.kind == events.AgentStopped && p.owns != ""
	if stopped && m.work.owner != p.owns {
		return moot
	}
	if old := m.said[p.id]; old != "" && !stopped {
		return old
	}
	if p.kind == events.WorkEnded && p.task != "" && m.work.task != "" && m.work.task != p.task {
		m.said[p.id] = moot
		return moot
	}
	if !stopped {
		m.said[p.id] = x
	}
	m.stream[x], m.known = "", true
	changed := p.kind == events.WorkStarted && m.work.task != "" && (m.work.task != p.task || m.work.project != p.project)
	switch {
	case stopped:
		m.leave()
	case p.kind == events.WorkEnded, p.kind == events.AgentStopped, changed:
		m.ended = x
		m.drop()
		clear(m.fate) // the watermark says it all
	}
	m.engage(p, changed)
	if p.kind == events.SandboxRequested {
		m.wait[x] = true
		m.request(p.rid, x)
	}
	return x
}

// engage is what an event means for the engagement.
func (m *machine) engage(p publication, changed bool) {
	w := &m.work
	if changed || p.kind == events.WorkEnded {
		w.task, w.project, w.owned = "", "", false
	}
	switch p.kind {
	case events.WorkEnded:
		w.over = true
	case events.WorkStarted:
		w.over, w.task, w.project = false, p.task, p.project
		w.owned = w.owned || p.owns == "container"
	default:
	}
}

// begin gives the verdict; epoch is the one that the server gave.
func (m *machine) begin(h *holder, a events.BeginArgs, late bool, epoch string) events.Verdict {
	if m.stream[h.d.Entry] != h.name {
		return events.Lost
	}
	q := m.request(h.rid, h.d.Entry)
	done := func(s events.State) events.Verdict {
		m.say(q, s, nil)
		m.finish(h.d.Entry)
		return events.Done
	}
	switch {
	case q.state != "" && (q.state != events.StateOK || m.covers(a.Set, nil)):
		return done(q.state)
	case !m.after(q.born):
		return done(events.StateStale)
	case m.work.over, m.work.task != "" && (m.work.task != a.Seen.Task || m.work.project != a.Seen.Project):
		return events.Again
	}
	m.work.task, m.work.project, m.known = a.Seen.Task, a.Seen.Project, true
	if m.work.owner != a.HashOwner || a.Seen.Owner == events.OwnerLease && m.work.owned {
		return events.Again
	}
	if m.work.owner != "" && m.work.owner != a.Seen.Owner {
		m.leave()
	}
	except := append(slices.Clone(a.Gone), a.Moved...)
	switch {
	case q.state == "" && late && !q.seen:
		return done(events.StateLate)
	case q.state == "" && m.covers(a.Asked, except):
		return events.Hit
	case m.leased() && m.lease != a.Epoch:
		q.seen = q.seen || q.state == ""
		m.stream[h.d.Entry] = parked
		return events.Busy
	}
	if m.lease == "" || m.lease != a.Epoch {
		if q.tries++; q.tries > attempts {
			m.dead++
			return done(events.StateExhausted)
		}
	}
	m.run(a, epoch)
	q.seen = q.seen || q.state == ""
	return events.Run
}

// run gives the lease under a new epoch, and strikes what was found dead.
func (m *machine) run(a events.BeginArgs, epoch string) {
	for engine, r := range m.record {
		if slices.Contains(a.Gone, r.ID) {
			delete(m.record, engine)
			m.fate[r.ID] = "revoked"
		}
	}
	m.lease, m.last, m.live, m.work.owner = epoch, epoch, true, a.Seen.Owner
	m.work.owned = m.work.owned || a.Seen.Owner != events.OwnerLease
}

func (m *machine) put(h *holder, epoch, engine string, e events.Entry, wants []events.Want) events.Fencing {
	switch {
	case m.lease != epoch:
		return events.Fenced
	case m.fate[e.ID] == "revoked" || !m.after(e.Born) || e.Pooled && !m.pools.claimed(e.ID):
		return events.Revoked
	}
	m.record[engine], m.fate[e.ID] = e, "recorded"
	if m.covers(wants, nil) {
		m.say(m.request(h.rid, ""), events.StateOK, wants)
	}
	return events.Held
}

func (m *machine) settle(h *holder, epoch string, failed bool, wants []events.Want) events.Fencing {
	if m.lease != epoch {
		return events.Fenced
	}
	m.lease = ""
	if q := m.request(h.rid, ""); q.state == "" {
		switch {
		case failed:
			m.say(q, events.StateFailed, nil)
		case !m.covers(wants, nil):
			return events.Lapsed
		default:
			m.say(q, events.StateOK, wants)
		}
	}
	m.finish(h.d.Entry)
	return events.Held
}

func (m *machine) beat(h *holder, epoch string) events.Fencing {
	if m.lease != epoch {
		return events.Fenced
	}
	if m.stream[h.d.Entry] != "" {
		m.stream[h.d.Entry] = h.name
	}
	m.live = true
	return events.Held
}

func (m *machine) hit(h *holder, wants []events.Want, checked map[string]string) events.Verdict {
	if m.stream[h.d.Entry] != h.name {
		return events.Lost
	}
	q := m.request(h.rid, "")
	if !m.after(q.born) || !m.covers(wants, nil) {
		return events.Again
	}
	for _, w := range wants {
		if checked[w.Engine] != m.record[w.Engine].ID {
			return events.Again
		}
	}
	m.say(q, events.StateOK, wants)
	m.finish(h.d.Entry)
	return events.Done
}

func (m *machine) refuse(h *holder, s events.State) bool {
	if m.stream[h.d.Entry] != h.name {
		return false
	}
	q := m.request(h.rid, "")
	if !m.after(q.born) {
		s = events.StateStale
	}
	m.say(q, s, nil)
	m.finish(h.d.Entry)
	return true
}

func (m *machine) revoke(f events.Found, own string, p events.Present) events.Fate {
	v := m.verdict(f, own, p)
	if v == events.FateDead {
		m.fate[f.ID] = "revoked"
	}
	return v
}

func (m *machine) adopt(f events.Found, own string, p events.Present, e events.Entry) events.Fate {
	if v := m.verdict(f, own, p); v != events.FateLost {
		return v
	}
	if m.leased() && m.lease != own {
		return events.FateBusy
	}
	m.known = true
	w := &m.work
	if w.task == "" {
		w.task, w.project = f.Tenancy.Task, f.Tenancy.Project
	}
	if w.owner == "" {
		w.owner = f.Tenancy.Owner
	}
	w.owned = w.owned || f.Tenancy.Owner != events.OwnerLease
	m.record[f.Engine], m.fate[f.ID] = e, "recorded"
	if f.Pooled && !m.pools.claimed(f.ID) {
		m.pools.take(f.ID, events.Claim{Slug: agent, Engine: f.Engine, Epoch: f.Epoch, Born: f.Born, Tenancy: f.Tenancy})
	}
	return events.FateAdopted
}

// verdict is what is to become of a container, by the rules for lost ones and for all others.
func (m *machine) verdict(f events.Found, own string, p events.Present) events.Fate {
	r, recorded := m.record[f.Engine]
	owner := f.Tenancy.Owner
	lives := owner != "" && owner == p.Owner && (owner != events.OwnerLease || !m.work.owned)
	switch {
	case f.Pooled && m.pools.claim[f.ID].Retired:
		return events.FateBusy
	case recorded && r.ID == f.ID && m.leased():
		return events.FateBusy
	case recorded && r.ID == f.ID:
		return events.FateRecorded
	case !m.after(f.Born) || m.fate[f.ID] == "revoked":
		return events.FateDead
	case f.Epoch != own && m.leased() && m.lease == f.Epoch:
		return events.FateBusy
	case m.work.owner != "" && m.work.owner != owner && lives:
		return events.FateBusy
	}
	task, project := m.work.task, m.work.project
	if task == "" && !m.work.over {
		task, project = p.Task, p.Project
	}
	number := func(s string) uint64 { n, _ := strconv.ParseUint(s, 10, 64); return n }
	n := number(f.Epoch)
	forgotten := !m.known || n < m.since || n > number(m.last)
	present := lives && task != "" && f.Tenancy.Task == task && f.Tenancy.Project == project
	if forgotten && present && !recorded && f.FirstLife && m.fate[f.ID] == "" {
		return events.FateLost
	}
	return events.FateDead
}
