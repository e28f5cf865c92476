package workertest

import "slices"

// I1: the watermark only grows.
func checkWatermarkGrows(p *Past, m Mark) {
	if m.Kind != MarkEnd {
		return
	}
	if n := p.newest[m.Agent]; n != "" && !before(n, m.ID) {
		p.bad("I1", "%s: the watermark fell from %s to %s", m.Agent, n, m.ID)
	}
}

// I3: a beat, a record, a claim comes from the holder of the lease.
func checkLeaseHolder(p *Past, m Mark) {
	if (m.Kind == MarkBeat || m.Kind == MarkRecord || m.Kind == MarkClaim) && m.Epoch != m.Lease {
		p.bad("I3", "%s: %s by epoch %q under the lease of %q", m.Agent, m.Kind, m.Epoch, m.Lease)
	}
}

// I3: epochs only grow: none acts after a larger one has.
func checkEpochGrows(p *Past, m Mark) {
	if m.Epoch != "" && before(m.Epoch, p.epochs[m.Agent]) {
		p.bad("I3", "%s: epoch %s acts after %s", m.Agent, m.Epoch, p.epochs[m.Agent])
	}
}

func isRecording(m Mark) bool { return m.Kind == MarkRecord || m.Kind == MarkAdopt }

// H1: a recorded container was alive when it was recorded.
func checkRecordedAlive(p *Past, m Mark) {
	if !isRecording(m) {
		return
	}
	l, known := p.Truth.Lives[m.Container]
	switch {
	case !known:
		p.bad("H1", "%s %s: recorded %s, which never was", m.Agent, m.Engine, short(m.Container))
	case l.Removed != 0 && l.Removed < m.At-slack:
		p.bad("H1", "%s %s: recorded %s, removed %d ms before", m.Agent, m.Engine, short(m.Container), (m.At-l.Removed)/1000)
	case l.Agent != m.Agent || l.Engine != m.Engine:
		p.bad("H1", "%s %s: recorded %s, which is %s's %s", m.Agent, m.Engine, short(m.Container), l.Agent, l.Engine)
	}
}

// H3: nothing is recorded after an end with a larger ID (I2).
func checkRecordedAfterEnd(p *Past, m Mark) {
	if n := p.newest[m.Agent]; isRecording(m) && n != "" && !before(n, m.Born) {
		p.bad("H3", "%s %s: %s born %s recorded, ended %s", m.Agent, m.Engine, short(m.Container), m.Born, n)
	}
}

// I5: what was revoked is never recorded again, within one life of Redis.
func checkNotRecordedWhenRevoked(p *Past, m Mark) {
	if at := p.revoked[m.Container]; isRecording(m) && at > p.flushed {
		p.bad("I5", "%s %s: %s recorded %d ms after it was revoked", m.Agent, m.Engine, short(m.Container), (m.At-at)/1000)
	}
}

// H4: one container at a time; a healthy one yields only to one that has more features.
func checkSuperseded(p *Past, m Mark) {
	old := p.current[slot{m.Agent, m.Engine}]
	if !isRecording(m) || old == nil || old.id == m.Container {
		return
	}
	healthy := !p.wasDead(old.id, m.At) && m.At < old.until-slack
	more := holds(m.Features, old.features) && !holds(old.features, m.Features)
	if healthy && !more {
		p.bad("H4", "%s %s: healthy %s %v superseded by %s %v", m.Agent, m.Engine, short(old.id), old.features, short(m.Container), m.Features)
	}
}

// H4: what is struck from a record was dead.
func checkStruck(p *Past, m Mark) {
	if m.Kind == MarkStrike && !p.wasDead(m.Container, m.At) {
		p.bad("H4", "%s %s: healthy %s struck", m.Agent, m.Engine, short(m.Container))
	}
}

// wasDead says whether a container had died or been removed by then.
func (p *Past) wasDead(id string, by int64) bool {
	gone := p.Truth.Lives[id].mayBeDead()
	return gone != 0 && gone <= by+slack
}

// H6: nothing is published again, unless Redis has lost it; whatever comes under a known ID changes nothing.
func checkPublishedOnce(p *Past, m Mark) {
	if m.Kind == MarkRequest && p.known[m.Request] {
		p.bad("H6", "%s: request %s was published again as %s", m.Agent, m.Request, m.Born)
	}
}

// L1: with nothing under way any more, every request that Redis still knows of was answered.
func checkAllAnswered(p *Past) {
	for _, rid := range sortedBy(p.waiting) {
		p.bad("L1", "%s: request %s born %s was never answered", p.waiting[rid].Agent, rid, p.waiting[rid].Born)
	}
}

// H5: one terminal reply; when a stream that lapsed is written again, it says the same, without credentials.
func checkOneReply(p *Past, m Mark) {
	if m.Kind != MarkReply {
		return
	}
	first := p.states[m.Request]
	switch {
	case first == "":
	case first != m.State:
		p.bad("H5", "%s: request %s was answered %s, then %s", m.Agent, m.Request, first, m.State)
	case len(m.Handed) > 0:
		p.bad("H5", "%s: request %s was answered with credentials twice", m.Agent, m.Request)
	}
}

// H5: a reply hands out what is recorded at that moment, of this agent.
func checkReplyRecorded(p *Past, m Mark) {
	p.eachHanded(m, func(engine, id string, l Life) {
		if r := p.current[slot{m.Agent, engine}]; r == nil || r.id != id {
			p.bad("H5", "%s %s: request %s was handed %s, which is not recorded", m.Agent, engine, m.Request, short(id))
		}
		if l.Agent != m.Agent {
			p.bad("H5", "%s %s: request %s was handed %s of %s", m.Agent, engine, m.Request, short(id), l.Agent)
		}
	})
}

// eachHanded calls f for each container that a reply hands out, in a fixed order.
func (p *Past) eachHanded(m Mark, f func(engine, id string, l Life)) {
	if m.Kind != MarkReply || m.State != "ok" {
		return
	}
	for _, engine := range sortedBy(m.Handed) {
		id := m.Handed[engine]
		f(engine, id, p.Truth.Lives[id])
	}
}

// H7: a reply's containers are younger than any end before its request.
func checkReplyYoung(p *Past, m Mark) {
	p.eachHanded(m, func(engine, id string, l Life) {
		for _, e := range p.ends[m.Agent] {
			if e.at > p.flushed && before(e.id, m.Born) && !before(e.id, l.Born) {
				p.bad("H7", "%s %s: request %s born %s was handed %s born %s, of before the end %s", m.Agent, engine, m.Request, m.Born, short(id), l.Born, e.id)
				return
			}
		}
	})
}

// H7: a reply's containers are of the request's task.
func checkReplyTask(p *Past, m Mark) {
	task := p.Asked[m.Request].Task
	p.eachHanded(m, func(engine, id string, l Life) {
		if task != "" && task != l.Task {
			p.bad("H7", "%s %s: request %s of %s was handed %s of %s", m.Agent, engine, m.Request, task, short(id), l.Task)
		}
	})
}

// H8: a reply's containers were alive when their check began, or a look at them may have served again. Where the mark does not tell when that was, somebody must have
// seen each one run since the request was published.
func checkReplyAlive(p *Past, m Mark) {
	p.eachHanded(m, func(engine, id string, l Life) {
		gone, r := l.Gone(), p.recs[id]
		if gone == 0 || gone >= m.At || r == nil || gone <= r.first { // before it was recorded it had another life
			return
		}
		if m.Checked != 0 {
			if gone < m.Checked-reuse-slack {
				p.bad("H8", "%s %s: request %s was handed %s, dead %d ms before the check", m.Agent, engine, m.Request, short(id), (m.Checked-gone)/1000)
			}
			return
		}
		published, _ := splitID(m.Born)
		since := published*1000 - reuse - slack
		if !slices.ContainsFunc(l.Looks, func(at int64) bool { return at >= since && at <= gone+slack }) {
			p.bad("H8", "%s %s: request %s was handed %s, dead for %d ms and never looked at", m.Agent, engine, m.Request, short(id), (m.At-gone)/1000)
		}
	})
}

func short(id string) string { return id[:min(12, len(id))] }
