package failpoint_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/require"
)

// manyWorkers leaves the number of consumers unjudged: those of the dead are swept later.
const manyWorkers = 100

// setting brings a world to where the scenario's worker starts.
func (w *world) setting(s scenario) {
	w.t.Helper()
	w.project(s.services, s.standing)
	if s.pool {
		w.ready = s.services
	}
	if s.prepare != nil {
		s.prepare(w)
	}
	if s.act != nil {
		s.act(w)
	}
}

// worker starts a worker in a scenario.
func (w *world) worker(s scenario, point string, first bool) *process {
	w.t.Helper()
	var env []string
	if first {
		env = s.env
	}
	if s.pool {
		env = append(slices.Clone(env), keeps)
	}
	p := w.start("worker", point, env...)
	if s.live != nil {
		p.awaitUp()
		s.live(w, p, first)
	}
	return p
}

// world makes the scenario's world: on a simulated engine, unless it says otherwise.
func (s scenario) world(t *testing.T) *world {
	t.Helper()
	if s.real {
		return newRealWorld(t)
	}
	return newWorld(t, s.slow)
}

// wanted are the engines that live in the end.
func (s scenario) wanted() []string {
	if s.want != nil {
		return s.want
	}
	return s.services
}

// rehearse runs a scenario that nobody disturbs, and gives the points that its worker passes.
func rehearse(t *testing.T, s scenario) []string {
	t.Helper()
	w := s.world(t)
	w.setting(s)
	p := w.worker(s, "", true)
	if s.ends {
		select {
		case <-p.ended:
		case <-time.After(patience):
			require.Fail(t, "it does not end")
		}
		require.True(t, p.cmd.ProcessState.Success(), "it ended with %v", p.cmd.ProcessState)
		w.swept()
	}
	next := p
	if s.ends {
		next = w.worker(s, "", false)
	}
	w.converged(s.wanted(), 1)
	passed := p.passed()
	w.closed()
	w.judgePast()
	next.stop()
	w.swept()
	return passed
}

// crash runs a scenario whose worker dies at the point, starts another, and demands that all comes right. It is false
// when the worker did not come to the point this time: who of several is first is a matter of chance.
func crash(t *testing.T, s scenario, point string) bool {
	t.Helper()
	w := s.world(t)
	w.setting(s)
	died := w.worker(s, point, true).reached(point, func() bool { return len(w.wrong(s.wanted(), manyWorkers)) == 0 })
	p := w.worker(s, "", false)
	w.converged(s.wanted(), manyWorkers)
	w.closed()
	w.judgePast()
	p.stop()
	return died
}

// tries bounds how often a case is run anew because its point was not reached.
const tries = 3

// kill is one case of the matrix.
type kill struct {
	scenario scenario
	point    string // with the number of its pass
}

func (k kill) String() string { return k.scenario.name + "/" + k.point }

// plan chooses where to kill: at each point in the first scenario that comes to it; around a call that changes something in
// two scenarios, and where several engines are at stake at its second pass too. In the long form it is every point of every
// scenario, in its first two passes. What every worker does from its start on is done in the scenario in which nothing else
// happens.
func plan(all []scenario, passed map[string][]string) []kill {
	var cases []kill
	background, often := passed[all[0].name], map[string]int{}
	for i, s := range all {
		for _, point := range passed[s.name] {
			name, pass, _ := strings.Cut(point, "#")
			usual := i > 0 && slices.Contains(background, name+"#1")
			switch {
			case usual || chancy(s, name):
			case pass == "1" && (everything() || often[name] < 1 || often[name] < 2 && changes(name)):
				often[name]++
				cases = append(cases, kill{s, point})
			case pass == "2" && (everything() && i > 0 || deep(s, name)):
				cases = append(cases, kill{s, point})
			}
		}
	}
	return cases
}

// chancy says that whether the worker comes to this point depends on how busy the machine is.
func chancy(s scenario, name string) bool {
	switch {
	case strings.HasPrefix(name, "redis.beat."):
		return !s.slow && s.name != "replace"
	case strings.HasPrefix(name, "redis.xautoclaim.entry."):
		return s.name != "twins"
	case strings.HasPrefix(name, "redis.retire."): // elsewhere it is the keeper's choice
		return s.name != "pool drained"
	}
	return false
}

// changes says that the call between these points leaves something behind that others see.
func changes(name string) bool {
	call := name[:strings.LastIndex(name, ".")]
	return slices.Contains([]string{
		"engine.create", "engine.start", "engine.rename", "engine.remove", "server.activate",
		"redis.claim", "redis.retire", "state.recordclaim",
		"redis.begin", "redis.record", "redis.settle", "redis.answer", "redis.revoke", "redis.adopt", "redis.finish", "redis.publish",
	}, call)
}

// deep says that the second pass is worth a kill of its own: one engine is done, the other is not. What fills a pool does so one
// by one.
func deep(s scenario, name string) bool {
	if s.pool && !strings.HasPrefix(name, "engine.rename.") {
		return false
	}
	return len(s.services) > 1 && changes(name) && (strings.HasPrefix(name, "engine.") || strings.HasPrefix(name, "redis.re"))
}

// A worker is killed at every point that it passes in every scenario; another one makes everything right.
func TestCrashMatrix(t *testing.T) {
	needContainers(t)
	binary(t)
	all := scenarios()
	passed := struct {
		sync.Mutex
		by map[string][]string
	}{by: map[string][]string{}}
	t.Run("undisturbed", func(t *testing.T) {
		for _, s := range all {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				points := rehearse(t, s)
				passed.Lock()
				defer passed.Unlock()
				passed.by[s.name] = points
			})
		}
	})
	require.False(t, t.Failed(), "the scenarios themselves fail")
	cases := plan(all, passed.by)
	if len(passed.by) == len(all) { // fewer were chosen with -run
		requireComplete(t, "worker", names(passed.by))
	}
	var table results
	t.Run("killed", func(t *testing.T) { table.each(t, cases) })
	table.show(t)
}

// each runs the cases, side by side, and notes what came of each.
func (r *results) each(t *testing.T, cases []kill) {
	t.Helper()
	for _, k := range cases {
		t.Run(k.String(), func(t *testing.T) {
			t.Parallel()
			t.Cleanup(func() { r.add(k.point, k.scenario.name, t) })
			for range tries {
				if crash(t, k.scenario, k.point) || t.Failed() {
					return
				}
			}
			if strings.HasSuffix(k.point, "#2") {
				t.Skip("whether there is a second pass is a matter of chance, and this time there was none")
			}
			require.Fail(t, "the point was never reached", "%d times all was done without it", tries)
		})
	}
}

// names are the points that were passed, without the numbers.
func names(passed map[string][]string) map[string]bool {
	all := map[string]bool{}
	for _, points := range passed {
		for _, p := range points {
			name, _, _ := strings.Cut(p, "#")
			all[name] = true
		}
	}
	return all
}

// results is the table of a matrix.
type results struct {
	mu   sync.Mutex
	rows map[string]string // point and scenario -> outcome
	// of the rows: what did not come right, and what was not tried after all
	bad, missed int
}

func (r *results) add(point, scenario string, t *testing.T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rows == nil {
		r.rows = map[string]string{}
	}
	outcome := "converged"
	switch {
	case t.Failed():
		outcome = "FAILED"
		r.bad++
	case t.Skipped():
		outcome = "not reached"
		r.missed++
	}
	r.rows[point+"\t"+scenario] = outcome
}

// show prints the table in the long form, and the count in any.
func (r *results) show(t *testing.T) {
	t.Helper()
	points := map[string]bool{}
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 4, 2, ' ', 0)
	for _, row := range slices.Sorted(maps.Keys(r.rows)) {
		point, _, _ := strings.Cut(row, "#")
		points[point] = true
		_, _ = fmt.Fprintf(table, "%s\t%s\n", row, r.rows[row])
	}
	_ = table.Flush()
	if everything() {
		_, _ = fmt.Fprintf(os.Stdout, "\npoint  scenario  outcome\n%s", b.String())
	}
	_, _ = fmt.Fprintf(os.Stdout, "%s: %d kills at %d points, %d did not converge\n", t.Name(), len(r.rows)-r.missed, len(points), r.bad)
}
