package workertest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
)

// Report is what came of a run.
type Report struct {
	Options    Options
	Requests   int
	Counts     map[string]int // faults and other happenings, by their name
	Marks      map[string]int // entries of the audit, by kind
	States     map[string]int // terminal replies, by state
	Made       int            // containers
	Latency    Quantiles      // of every request
	Hits       Quantiles      // of those that were answered at once from the record
	Violations []Violation
}

// Quantiles of a latency, in milliseconds.
type Quantiles struct {
	N             int
	P50, P99, Max float64
}

// QuantilesOf milliseconds.
func QuantilesOf(ms []float64) Quantiles {
	if len(ms) == 0 {
		return Quantiles{}
	}
	s := slices.Sorted(slices.Values(ms))
	at := func(q float64) float64 { return s[int(q*float64(len(s)-1))] }
	return Quantiles{N: len(s), P50: at(.5), P99: at(.99), Max: at(1)}
}

// report judges the history, with all workers gone.
func (c *chaos) report(ctx context.Context) (Report, error) {
	last, err := c.adm.XRange(ctx, AuditKey(cell), "-", "+").Result()
	if err != nil {
		return Report{}, fmt.Errorf("chaos: read the audit: %w", err)
	}
	f := c.facts
	f.mu.Lock()
	defer f.mu.Unlock()
	marks, err := ReadMarks(append(slices.Clone(f.audit), last...))
	if err != nil {
		return Report{}, fmt.Errorf("chaos: %w", err)
	}
	truth := c.sim.Truth()
	claims, err := c.store.Claims(ctx, truth.Pooled())
	if err != nil {
		return Report{}, fmt.Errorf("chaos: read the claims: %w", err)
	}
	past := Past{Truth: truth, Asked: f.asked, TTL: recordTTL.Microseconds(), Tasks: f.tasks, Stored: claims}
	found, counts := past.Judge(marks)
	found = append(slices.Clone(f.found), found...)
	if f.anew > 0 && c.o.Mode != Flush {
		found = append(found, Violation{Check: "H6", Detail: fmt.Sprintf("%d requests had been forgotten and were published again", f.anew)})
	}
	r := Report{
		Options: c.o, Requests: len(f.asked), Counts: f.counts, Marks: counts, States: map[string]int{}, Made: len(truth.Lives),
		Latency: QuantilesOf(f.all), Hits: QuantilesOf(f.hits), Violations: found,
	}
	r.Counts["requests published anew"] = f.anew
	r.Counts["undecodable entries"] = f.garbage
	for _, s := range f.states {
		r.States[string(s)]++
	}
	return r, nil
}

// ByCheck counts the violations.
func (r Report) ByCheck() map[string]int {
	n := map[string]int{}
	for _, v := range r.Violations {
		n[v.Check]++
	}
	return n
}

// String is the whole as a table, with the first violations of each check in words.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, mode %s, %v, %d workers, %d agents\n", r.Options.Seed, r.Options.Mode, r.Options.Duration, r.Options.Workers, r.Options.Agents)
	fmt.Fprintf(&b, "%d requests, %d containers\n", r.Requests, r.Made)
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, part := range []struct {
		title string
		n     map[string]int
	}{{"reply", r.States}, {"happened", r.Counts}, {"audit", r.Marks}} {
		for _, k := range sortedBy(part.n) {
			fmt.Fprintf(t, "%s\t%s\t%d\n", part.title, k, part.n[k])
		}
	}
	for _, q := range []struct {
		title string
		q     Quantiles
	}{{"all", r.Latency}, {"hits", r.Hits}} {
		fmt.Fprintf(t, "latency\t%s\t%d\tp50 %.1f ms\tp99 %.0f ms\tmax %.0f ms\n", q.title, q.q.N, q.q.P50, q.q.P99, q.q.Max)
	}
	by := r.ByCheck()
	for _, k := range sortedBy(by) {
		fmt.Fprintf(t, "VIOLATED\t%s\t%d\n", k, by[k])
	}
	_ = t.Flush()
	shown := map[string]int{}
	for _, v := range r.Violations {
		if shown[v.Check]++; shown[v.Check] <= 4 {
			fmt.Fprintf(&b, "%s: %s\n", v.Check, v.Detail)
		}
	}
	fmt.Fprintf(&b, "VIOLATIONS=%d\n", len(r.Violations))
	return b.String()
}
