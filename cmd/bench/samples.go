package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// samples are what one thing took, each time.
type samples []time.Duration

// at gives the value below which this share of the samples lies; 0 where there are none.
func (s samples) at(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[int(q*float64(len(sorted)-1)+0.5)]
}

func (s samples) p50() time.Duration { return s.at(.5) }

// thing names what is measured in rounds: a set, and the way in which it comes about.
type thing struct{ set, way string }

// What is measured in rounds besides sets.
const (
	floorOne   = "floor"
	floorThree = "three side by side"
	removal    = "removal"
	releaseOf  = "release"
)

// findings are what a run has found so far.
type findings struct {
	samples map[thing]samples
	memory  []held
	crowd   *crowdFinding
	hits    []throughputFinding
	growth  []growthFinding
}

func newFindings() *findings { return &findings{samples: map[thing]samples{}} }

func (f *findings) add(t thing, took time.Duration) { f.samples[t] = append(f.samples[t], took) }

func (f *findings) p50(set, way string) time.Duration { return f.samples[thing{set, way}].p50() }

// floor is what the machine itself takes, as way tells.
func (f *findings) floor(way string) time.Duration { return f.p50("", way) }

func ms(d time.Duration) string { return fmt.Sprintf("%.1f", millis(d)) }

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// ratio of two times; 0 where one was not measured.
func ratio(a, b time.Duration) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// row is a row of a table in Markdown.
func row(cells ...string) string { return "| " + strings.Join(cells, " | ") + " |\n" }
