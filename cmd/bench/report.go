package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

type samples []time.Duration

// at gives the value below which this share of the samples lies.
func (s samples) at(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[int(q*float64(len(sorted)-1)+0.5)]
}

// report is the run as Markdown: what was measured, and the ratios that are promised.
func (b *bench) report(machine string) string {
	var w strings.Builder
	fmt.Fprintf(&w, "# Benchmarks\n\nMade by `make bench` on %s. Milliseconds; only ratios within one run mean anything, for machines differ threefold.\n\n", machine)
	fmt.Fprintf(&w, "| what | n | p50 | p95 | p99 | x floor |\n|---|---|---|---|---|---|\n")
	names := []string{floorStart, floorRemoval}
	slowest := time.Duration(0)
	for _, e := range b.engines {
		names = append(names, coldAlone(e.Name))
		slowest = max(slowest, b.p50(coldAlone(e.Name)))
	}
	names = append(names, coldFull, releaseFull, hitPlain)
	for _, n := range names {
		s := b.samples[n]
		fmt.Fprintf(&w, "| %s | %d | %s | %s | %s | %.2f |\n", n, len(s), ms(s.at(.5)), ms(s.at(.95)), ms(s.at(.99)), ratio(s.at(.5), b.p50(floorStart)))
	}
	fmt.Fprintf(&w, "\n| ratio within this run | measured | promised at most |\n|---|---|---|\n")
	fmt.Fprintf(&w, "| a hit, p50, in ms | %s | 10 |\n", ms(b.p50(hitPlain)))
	fmt.Fprintf(&w, "| the full set, cold, to the slowest engine alone | %.2f | 1.6 |\n", ratio(b.p50(coldFull), slowest))
	fmt.Fprintf(&w, "| a release of the full set to a forced removal of one container | %.2f | 4 |\n", ratio(b.p50(releaseFull), b.p50(floorRemoval)))
	return w.String()
}

func (b *bench) p50(name string) time.Duration { return b.samples[name].at(.5) }

func ms(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d.Microseconds())/1000) }

func ratio(a, b time.Duration) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}
