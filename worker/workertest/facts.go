package workertest

import (
	"context"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/roboco/sandboxd/events"
)

// facts is what the harness has seen itself. All methods are safe for concurrent use.
type facts struct {
	mu      sync.Mutex
	counts  map[string]int
	found   []Violation
	audit   []redis.XMessage // of before the last flush, flushes included
	asked   map[string]Asked
	tasks   map[string][]Worked
	states  map[string]events.State // by request: how it ended
	all     []float64               // milliseconds from asking to the terminal reply
	hits    []float64               // likewise, of those answered without a word of progress
	garbage int
	anew    int // publications of a request that Redis had forgotten

	over    context.Context //nolint:containedctx // when agents are to stop
	overNow context.CancelFunc
}

func newFacts() *facts {
	f := &facts{counts: map[string]int{}, asked: map[string]Asked{}, tasks: map[string][]Worked{}, states: map[string]events.State{}}
	f.over, f.overNow = context.WithCancel(context.Background())
	return f
}

// giveUp ends every wait for a reply.
func (f *facts) giveUp() { f.overNow() }

func (f *facts) count(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts[what]++
}

func (f *facts) bad(check, format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.found = append(f.found, Violation{Check: check, Detail: fmt.Sprintf(format, args...)})
}

// ask notes a request before it is published.
func (f *facts) ask(rid string, a Asked) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked[rid] = a
}

// unsure forgets under which task and owner a request counts: it is published again, and may be of a later time.
func (f *facts) unsure(rid string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked[rid] = Asked{}
}

func (f *facts) republished() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.anew++
}

// answered notes a terminal reply.
func (f *facts) answered(rid string, s events.State, ms float64, hit bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.states[rid] = s
	f.all = append(f.all, ms)
	if hit && s == events.StateOK {
		f.hits = append(f.hits, ms)
	}
}

// works notes what an agent works on from now on; "" is nothing.
func (f *facts) works(agent, task string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tasks[agent] = append(f.tasks[agent], Worked{Task: task, At: micros()})
}

// spoiled notes an undecodable entry.
func (f *facts) spoiled() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.garbage++
}

// keepAudit keeps marks that a flush took away, and marks the flush.
func (f *facts) keepAudit(entries []redis.XMessage, at int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.audit = append(f.audit, entries...)
	f.audit = append(f.audit, redis.XMessage{ID: "flush", Values: map[string]any{"k": string(MarkFlush), "us": fmt.Sprint(at)}})
}
