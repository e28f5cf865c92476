package workertest

import (
	"slices"

	"github.com/roboco/sandboxd/events"
)

// H10: a container is recorded for its own owner.
func checkRecordedOwner(p *Past, m Mark) {
	if !isRecording(m) {
		return
	}
	if l := p.Truth.Lives[m.Container]; l.Owner != m.Owner {
		p.bad("H10", "%s %s: %s of %s recorded for %s", m.Agent, m.Engine, short(m.Container), l.Owner, m.Owner)
	}
}

// H10: a reply hands out containers of the owner it was begun for, and of none older than the one that asked.
func checkReplyOwner(p *Past, m Mark) {
	asker, known := p.Asked[m.Request]
	p.eachHanded(m, func(engine, id string, l Life) {
		switch {
		case m.Owner != "" && l.Owner != m.Owner:
			p.bad("H10", "%s %s: request %s begun for %s was handed %s of %s", m.Agent, engine, m.Request, m.Owner, short(id), l.Owner)
		case known && p.Truth.Owners[l.Owner].Seq < p.Truth.Owners[asker.Owner].Seq:
			p.bad("H10", "%s %s: request %s made by %s was handed %s of %s", m.Agent, engine, m.Request, asker.Owner, short(id), l.Owner)
		}
	})
}

// H10: only an owner that has gone loses its sandbox so; a lease may yield to a container.
func checkLeft(p *Past, m Mark) {
	if m.Kind == MarkLeave && m.Owner != events.OwnerLease && !p.Truth.OwnerDown(m.Owner, m.At+slack) {
		p.bad("H10", "%s: the sandbox of %s, which lives, was ended by %s", m.Agent, m.Owner, m.Type)
	}
}

// H10: nothing is stale without an end after it; a stopped owner is no end.
func checkStale(p *Past, m Mark) {
	if m.Kind != MarkReply || m.State != string(events.StateStale) {
		return
	}
	overtaken := slices.ContainsFunc(p.ends[m.Agent], func(e ended) bool { return !before(e.id, m.Born) })
	if !overtaken {
		p.bad("H10", "%s: request %s born %s is stale without an end", m.Agent, m.Request, m.Born)
	}
}

// H2: a recorded container that lives is removed only for a reason.
func checkRemovals(p *Past) {
	for _, id := range sortedBy(p.recs) {
		r, l := p.recs[id], p.Truth.Lives[id]
		if l.Removed == 0 || p.mayGo(r, l) {
			continue
		}
		p.bad("H2", "%s %s: %s of %s removed %d ms after it was recorded, without a reason", r.agent, r.engine, short(id), l.Owner, (l.Removed-r.first)/1000)
	}
}

// mayGo says whether there was a reason to remove this container when it was removed.
func (p *Past) mayGo(r *recording, l Life) bool {
	at := l.Removed
	switch {
	case r.next > 0 && r.next <= at+slack: // superseded
		return true
	case at >= r.until-20_000: // its record lapsed
		return true
	case l.Died != 0 && min(l.Died, l.mayBeDead()) <= at+slack:
		return true
	case slices.ContainsFunc(p.ends[l.Agent], func(e ended) bool { return before(l.Born, e.id) && e.at <= at+slack }):
		return true
	case p.ownerLeft(r, l):
		return true
	}
	return p.flushed > 0 && p.mayGoAfterFlush(r, l)
}

// ownerLeft says whether the container's owner had left by then. A sandbox under a lease yields to the agent's first container.
func (p *Past) ownerLeft(r *recording, l Life) bool {
	return slices.ContainsFunc(p.left[l.Agent], func(e ended) bool {
		if e.id != l.Owner || e.at > l.Removed+slack {
			return false
		}
		return p.Truth.OwnerDown(l.Owner, l.Removed+slack) || e.id == events.OwnerLease && e.at >= r.first
	})
}

// mayGoAfterFlush knows the reasons that a flush has swallowed.
func (p *Past) mayGoAfterFlush(r *recording, l Life) bool {
	at := l.Removed
	if p.Truth.OwnerDown(l.Owner, at+slack) {
		return true
	}
	if l.Owner == events.OwnerLease {
		began := max(l.Created, l.Claimed) // for this agent
		for _, o := range p.Truth.Owners { // a container came: the lease has yielded
			if o.Agent == l.Agent && began-3_000_000 < o.Up && o.Up <= at {
				return true
			}
		}
	}
	if task, known := p.taskAt(l.Agent, at); known && task != l.Task {
		return true
	}
	if revoked, ok := p.revoked[l.ID]; ok && revoked < p.flushed && revoked < r.first {
		p.counts["removal in flight over a flush"]++ // the verdict was wiped out while the engine was at it
		return true
	}
	return false
}
