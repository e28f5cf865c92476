package main

import (
	"context"
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/roboco/sandboxd/worker/workertest"
)

// facts is what the harness has seen itself. All methods are safe for concurrent use.
type facts struct {
	mu       sync.Mutex
	faults   map[kind]int
	counts   map[string]int
	found    []workertest.Violation
	audit    []redis.XMessage // as far as it was read, flushes included
	asked    map[string]workertest.Asked
	tasks    map[string][]workertest.Worked
	outcomes map[string]int // as agents saw them
	reasons  map[string]int // of refusals, without names and numbers
	all      []float64      // milliseconds from asking to the terminal reply
	hits     []float64      // likewise, of those answered without a word of progress
	garbage  int
	faulty   bool
	calm     time.Time // since when it is not faulty any more

	over   context.Context //nolint:containedctx // when agents are to give up
	giveUp context.CancelFunc
}

func newFacts() *facts {
	f := &facts{
		faults: map[kind]int{}, counts: map[string]int{}, asked: map[string]workertest.Asked{},
		tasks: map[string][]workertest.Worked{}, outcomes: map[string]int{}, reasons: map[string]int{},
	}
	f.over, f.giveUp = context.WithCancel(context.Background())
	return f
}

func (f *facts) count(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts[what]++
}

// happened counts a fault.
func (f *facts) happened(k kind) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.faults[k]++; k == entryBroken {
		f.garbage++
	}
}

func (f *facts) bad(check, format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.found = append(f.found, workertest.Violation{Check: check, Detail: fmt.Sprintf(format, args...)})
}

func (f *facts) setFaulty(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faulty, f.calm = on, time.Now()
}

// wasFaulty says that there were faults at that time or since.
func (f *facts) wasFaulty(since time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.faulty || f.calm.After(since)
}

func (f *facts) isFaulty() bool { return f.wasFaulty(time.Now()) }

// ask notes under what a request was published.
func (f *facts) ask(id string, a workertest.Asked) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked[id] = a
}

// answered notes what an agent was told in the end.
func (f *facts) answered(outcome string, took time.Duration, hit bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.outcomes[outcome]++
	ms := float64(took.Microseconds()) / 1000
	f.all = append(f.all, ms)
	if hit && outcome == outcomeOK {
		f.hits = append(f.hits, ms)
	}
}

// refused notes why, in words that are the same for all agents.
func (f *facts) refused(why string) {
	why = regexp.MustCompile(`\S*\d\S*`).ReplaceAllString(why, "#")
	if r := []rune(why); len(r) > 100 {
		why = string(r[:100])
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reasons[why]++
}

// works notes what an agent works on from now on; "" is nothing.
func (f *facts) works(agent, task string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tasks[agent] = append(f.tasks[agent], workertest.Worked{Task: task, At: micros()})
}

func micros() int64 { return time.Now().UnixMicro() }

// lastMark is the ID of the last entry of the audit that was read, to read on from.
func (f *facts) lastMark() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.audit); n > 0 && f.audit[n-1].ID != flushMark {
		return "(" + f.audit[n-1].ID
	}
	return "-"
}

// flushMark stands in place of an ID where Redis was emptied.
const flushMark = "flush"

// keep takes entries of the audit; at is when Redis was emptied after them, 0 when it was not.
func (f *facts) keep(entries []redis.XMessage, at int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.audit = append(f.audit, entries...)
	if at != 0 {
		f.audit = append(f.audit, redis.XMessage{ID: flushMark, Values: map[string]any{"k": string(workertest.MarkFlush), "us": fmt.Sprint(at)}})
	}
}

// exhausted counts the requests that were tried too often: they are dead letters.
func (f *facts) exhausted() (n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.audit {
		if e.Values["k"] == string(workertest.MarkReply) && e.Values["st"] == "exhausted" {
			n++
		}
	}
	return n
}

// progress is one line on how far the run has come.
func (f *facts) progress() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	faults, replies := 0, 0
	for _, n := range f.faults {
		faults += n
	}
	for _, n := range f.outcomes {
		replies += n
	}
	return fmt.Sprintf("%d faults, %d requests, %d replies, %d violations", faults, len(f.asked), replies, len(f.found))
}
