package main

import (
	"fmt"
	"math"
	"strconv"
)

// promise is a bound on what was measured within one run.
type promise struct {
	what     string
	measured float64 // 0 where something that it needs was not measured
	bound    float64
	atLeast  bool // the bound is the least that will do, not the most
}

func (p promise) known() bool { return p.measured > 0 }

func (p promise) kept() bool {
	if p.atLeast {
		return p.measured >= p.bound
	}
	return p.measured <= p.bound
}

// verdict is the promise's row of the report.
func (p promise) verdict() string {
	sense, measured, kept := "at most", "-", "not measured"
	if p.atLeast {
		sense = "at least"
	}
	if p.known() {
		measured, kept = number(p.measured), "yes"
		if !p.kept() {
			kept = "**no**"
		}
	}
	return row(p.what, measured, sense+" "+strconv.FormatFloat(p.bound, 'f', -1, 64), kept)
}

func number(v float64) string {
	if v >= 100 || v == math.Trunc(v) {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// promises are those of the project, with what this run has measured.
func (f *findings) promises() []promise {
	all := []promise{
		{what: "full set: the replaced protocol to pooled", measured: f.ratio(setFull, replaced, setFull, pooled), bound: 120, atLeast: true},
		{what: "full set: testcontainers-go to pooled", measured: f.ratio(setFull, testcontainers, setFull, pooled), bound: 60, atLeast: true},
		{what: "postgres: testcontainers-go to pooled with vector", measured: f.ratio(setPostgres, testcontainers, setVector, pooled), bound: 60, atLeast: true},
		{what: "postgres alone, primed, to the floor", measured: f.ratio(setPostgres, primed, "", floorOne), bound: 2},
		{what: "postgres alone, primed, to upstream", measured: f.ratio(setPostgres, primed, setPostgres, upstream), bound: 0.45},
		{what: "full set, primed, to three trivial containers side by side", measured: f.ratio(setFull, primed, "", floorThree), bound: 1.6},
		{what: "full set, upstream, to the slowest engine alone", measured: ratio(f.p50(setFull, upstream), f.slowest(upstream)), bound: 1.6},
		{what: "release of the full set to a forced removal of one container", measured: f.ratio("", releaseOf, "", removal), bound: 4},
		{what: "hit of the full set over HTTP, one caller: p50 in ms", measured: millis(f.p50(setFull, hit)), bound: 5},
	}
	for _, t := range f.hits {
		if t.workers == 1 {
			all = append(all, promise{what: fmt.Sprintf("hits a second, one worker, one gateway, %d callers", t.callers), measured: t.perSecond(), bound: 1500, atLeast: true})
		}
	}
	if c := f.crowd; c != nil {
		all = append(all,
			promise{what: fmt.Sprintf("%d agents at once: answered", c.agents), measured: float64(c.answered), bound: float64(c.agents), atLeast: true},
			promise{what: fmt.Sprintf("%d agents at once: p99 to plain starts of the remaining %d containers", c.agents, c.containers), measured: ratio(c.took.at(.99), c.bare), bound: 1.3})
	}
	return all
}

func (f *findings) ratio(set, way, toSet, toWay string) float64 {
	return ratio(f.p50(set, way), f.p50(toSet, toWay))
}

// broken counts the promises that this run has not kept.
func (f *findings) broken() int {
	n := 0
	for _, p := range f.promises() {
		if p.known() && !p.kept() {
			n++
		}
	}
	if c := f.crowd; c != nil && c.answered == 0 {
		n++ // none at all does not count as not measured
	}
	return n
}
