package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/roboco/sandboxd/worker/workertest"
)

// report is what came of a run.
type report struct {
	o          options
	schedule   string // its digest
	faults     map[kind]int
	counts     map[string]int
	outcomes   map[string]int // as agents saw them
	reasons    map[string]int // of refusals
	marks      map[string]int // entries of the audit, by kind
	requests   int
	made       int // containers
	latency    workertest.Quantiles
	hits       workertest.Quantiles
	Logs       string // where the processes' logs are, when they were kept
	Violations []workertest.Violation
}

// invariants are all that a run is held to, in the order of the report.
func invariants() [][2]string {
	return [][2]string{
		{"I1", "the watermark only grows"},
		{"I3", "beat and record by the lease's holder, epochs grow"},
		{"I5", "nothing revoked is recorded"},
		{"H1", "recorded containers were alive"},
		{"H2", "no live recorded container goes without a reason"},
		{"H3", "nothing recorded after a later end"},
		{"H4", "one valid container per agent and engine"},
		{"H5", "one terminal reply, of the agent's own"},
		{"H6", "nothing published twice"},
		{"H7", "replies younger than any end, and of their task"},
		{"H8", "replies' containers were alive when checked"},
		{"H9", "replies hold what was asked for"},
		{"H10", "nothing of another owner, nobody's life taken for gone"},
		{"P1", "a ready container is claimed once, none that was retired"},
		{"P2", "what came from a pool is recorded by its claim, and the durable store knows"},
		{"P3", "nothing that was in use is claimed again"},
		{"P4", "pools hold what runs and is nobody's, no more than they may; none outlives the last worker"},
		{"F1", "a flush costs no sandbox and no password"},
		{"L1", "every request answered"},
		{"L2", "stream and pending list empty"},
		{"R1", "containers are recorded, with their passwords"},
		{"R2", "names are right"},
		{"R3", "nothing outlives an end"},
		{"R4", "what is recorded is there"},
		{"R5", "no consumer of a dead process"},
		{"R6", "processes end only when told, with code 0"},
		{"R7", "the stranger lives"},
		{"R8", "no credentials in a reply after an end"},
		{"R9", "dead letters are exact"},
		{"R10", "nothing outlives its owner"},
		{"R11", "no orphan volume or network"},
		{"S1", "no password in a log, no panic"},
		{"G1", "no goroutine left"},
		{"envelope", "refusals say what and what to do"},
		{"api", "the gateway refuses nothing that is right"},
		{"harness", "the harness did its part"},
	}
}

// report ends the processes and judges the history.
func (r *run) report(ctx context.Context) (report, error) {
	r.shutDown()
	r.readAudit(ctx)
	truth := r.place.truth()
	r.searchLogs(truth)
	claims, err := r.store.Claims(ctx, truth.Pooled())
	if err != nil {
		return report{}, fmt.Errorf("read the claims: %w", err)
	}
	if err := r.poolsAreGone(ctx); err != nil {
		return report{}, err
	}
	f := r.facts
	f.mu.Lock()
	defer f.mu.Unlock()
	marks, err := workertest.ReadMarks(f.audit)
	if err != nil {
		return report{}, fmt.Errorf("read the audit: %w", err)
	}
	past := workertest.Past{Truth: truth, Asked: f.asked, TTL: r.times.TTL.Microseconds(), Tasks: f.tasks, Stored: claims}
	found, counts := past.Judge(marks)
	rep := report{
		o: r.o, schedule: digest(r.faults), faults: f.faults, counts: f.counts, outcomes: f.outcomes, reasons: f.reasons, marks: counts, requests: len(f.asked),
		made: len(truth.Lives), latency: workertest.QuantilesOf(f.all), hits: workertest.QuantilesOf(f.hits), Violations: append(f.found, found...),
	}
	f.found = nil
	if len(rep.Violations) > 0 {
		return rep, r.keepAudit()
	}
	return rep, nil
}

// keepAudit writes the audit beside the logs, an entry a line, for whoever is to find out what went wrong.
func (r *run) keepAudit() error {
	f, err := os.Create(filepath.Join(r.logs, "audit.jsonl"))
	if err != nil {
		return fmt.Errorf("keep the audit: %w", err)
	}
	lines := json.NewEncoder(f)
	for _, e := range r.facts.audit {
		if err := lines.Encode(e.Values); err != nil {
			return fmt.Errorf("keep the audit: %w", errors.Join(err, f.Close()))
		}
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("keep the audit: %w", err)
	}
	return nil
}

// searchLogs looks for what must not stand in the processes' logs.
func (r *run) searchLogs(truth workertest.Truth) {
	secrets := map[string]string{}
	for _, l := range truth.Lives {
		secrets[l.Password] = l.Name
	}
	delete(secrets, "")
	logs, _ := filepath.Glob(filepath.Join(r.logs, "*.log"))
	for _, name := range logs {
		if err := searchLog(name, secrets, r.facts); err != nil {
			r.facts.bad("harness", "search the log %s: %v", name, err)
		}
	}
}

func searchLog(name string, secrets map[string]string, facts *facts) error {
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("open it: %w", err)
	}
	defer f.Close()
	words := regexp.MustCompile(`[0-9a-f]{32,}`)
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		line := lines.Text()
		for _, w := range words.FindAllString(line, -1) {
			if whose := secrets[w]; whose != "" {
				facts.bad("S1", "%s holds the password of %s", filepath.Base(name), whose)
			}
		}
		if strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") || strings.Contains(line, "panicked") {
			facts.bad("S1", "%s: %s", filepath.Base(name), line[:min(len(line), 300)])
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read it: %w", err)
	}
	return nil
}

// String is the whole as a table, with the first violations of each invariant in words.
func (r report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "chaos -engine %s -mode %s -seed %d -duration %v -workers %d -agents %d -gap %v\n",
		r.o.Engine, r.o.Mode, r.o.Seed, r.o.Duration, r.o.Workers, r.o.Agents, r.o.Gap)
	lives, total := map[kind]bool{agentDied: true, agentSilent: true, replyLapsed: true, entryBroken: true}, 0
	scheduled := 0
	for k, n := range r.faults {
		if total += n; !lives[k] {
			scheduled += n
		}
	}
	fmt.Fprintf(&b, "schedule %s: %d faults, and %d in the agents' lives; %d requests, %d containers\n\n",
		r.schedule, scheduled, total-scheduled, r.requests, r.made)
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	table(t, "fault", r.faults)
	table(t, "reply", r.replies())
	table(t, "told to the agent", r.outcomes)
	table(t, "pool", r.pools())
	table(t, "happened", r.counts)
	table(t, "refused because", r.commonest(12))
	for _, q := range []struct {
		title string
		q     workertest.Quantiles
	}{{"all", r.latency}, {"hits", r.hits}} {
		fmt.Fprintf(t, "latency\t%s\t%d\tp50 %.1f ms\tp99 %.0f ms\tmax %.0f ms\n", q.title, q.q.N, q.q.P50, q.q.P99, q.q.Max)
	}
	fmt.Fprintln(t)
	by := map[string]int{}
	for _, v := range r.Violations {
		by[v.Check]++
	}
	for _, i := range invariants() {
		fmt.Fprintf(t, "violations\t%s\t%d\t%s\n", i[0], by[i[0]], i[1])
		delete(by, i[0])
	}
	table(t, "violations", by)
	_ = t.Flush() // to memory
	r.explain(&b)
	return b.String()
}

// replies are the terminal replies that workers gave, by their state.
func (r report) replies() map[string]int {
	states := map[string]int{}
	for k, n := range r.marks {
		if state, ok := strings.CutPrefix(k, "reply "); ok {
			states[state] = n
		}
	}
	return states
}

// pools is what became of ready containers.
func (r report) pools() map[string]int {
	all := map[string]int{}
	for mark, title := range map[workertest.MarkKind]string{
		workertest.MarkStock: "put in", workertest.MarkClaim: "claimed", workertest.MarkRetire: "retired",
	} {
		if n := r.marks[string(mark)]; n > 0 {
			all[title] = n
		}
	}
	return all
}

// commonest are the reasons of refusals that came most often.
func (r report) commonest(n int) map[string]int {
	all := slices.SortedFunc(maps.Keys(r.reasons), func(a, b string) int { return r.reasons[b] - r.reasons[a] })
	most := map[string]int{}
	for _, why := range all[:min(n, len(all))] {
		most[why] = r.reasons[why]
	}
	return most
}

func (r report) explain(b *strings.Builder) {
	shown := map[string]int{}
	for _, v := range r.Violations {
		if shown[v.Check]++; shown[v.Check] <= 4 {
			fmt.Fprintf(b, "%s: %s\n", v.Check, v.Detail)
		}
	}
	if r.Logs != "" {
		fmt.Fprintf(b, "the processes' logs: %s\n", r.Logs)
	}
	fmt.Fprintf(b, "VIOLATIONS=%d\n", len(r.Violations))
}

func table[K ~string](t *tabwriter.Writer, title string, n map[K]int) {
	for _, k := range slices.Sorted(maps.Keys(n)) {
		fmt.Fprintf(t, "%s\t%s\t%d\n", title, k, n[k])
	}
}
