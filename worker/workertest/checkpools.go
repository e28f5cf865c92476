package workertest

// P1: a container is claimed once, and never after it was retired. Only a flush forgets either.
func checkClaimedOnce(p *Past, m Mark) {
	if m.Kind != MarkClaim {
		return
	}
	if first, is := p.claims[m.Container]; is {
		p.bad("P1", "%s %s: %s was claimed, %d ms after it was %s's", m.Agent, m.Engine, short(m.Container), (m.At-first.At)/1000, first.Agent)
	}
	if p.retired[m.Container] {
		p.bad("P1", "%s %s: %s was claimed after it was retired", m.Agent, m.Engine, short(m.Container))
	}
}

// P1: what is claimed was born in a pool, of the engine that is asked for.
func checkClaimedReady(p *Past, m Mark) {
	if l, known := p.Truth.Lives[m.Container]; m.Kind == MarkClaim && (!known || !l.Pooled || l.Engine != m.Engine) {
		p.bad("P1", "%s %s: %s was claimed, which is no ready container of it (%q)", m.Agent, m.Engine, short(m.Container), l.Engine)
	}
}

// P2: what is recorded of a pool's was claimed by this agent: by a claim that Redis knows, or, adopted, by one that it has
// forgotten.
func checkRecordedClaimed(p *Past, m Mark) {
	if !isRecording(m) || !p.Truth.Lives[m.Container].Pooled {
		return
	}
	claim, is := p.claims[m.Container]
	switch {
	case m.Kind == MarkRecord && (!is || claim.Agent != m.Agent):
		p.bad("P2", "%s %s: %s was recorded, and the claim of it is %q's", m.Agent, m.Engine, short(m.Container), claim.Agent)
	case m.Kind == MarkAdopt && !p.claimed[taken{m.Agent, m.Container}]:
		p.bad("P2", "%s %s: %s was adopted, and never claimed by this agent", m.Agent, m.Engine, short(m.Container))
	}
}

// P3: what was in somebody's hands is never claimed again, flush or not: the durable store knows of it.
func checkClaimedUnused(p *Past, m Mark) {
	if agent := p.used[m.Container]; m.Kind == MarkClaim && agent != "" {
		p.bad("P3", "%s %s: %s was claimed, which %s had in its hands", m.Agent, m.Engine, short(m.Container), agent)
	}
}

// P3: what has borne another name than its pool's, which may have been seen, is never put in again.
func checkStockedUnseen(p *Past, m Mark) {
	if l := p.Truth.Lives[m.Container]; m.Kind == MarkStock && l.Seen != 0 && l.Seen < m.At-slack {
		p.bad("P3", "%s: %s was put into its pool, %d ms after it was called otherwise: %v", m.Engine, short(m.Container), (m.At-l.Seen)/1000, l.Names)
	}
}
