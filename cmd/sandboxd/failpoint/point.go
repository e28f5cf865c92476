package failpoint

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Points are the named moments of one process. Its methods are safe for concurrent use.
type Points struct {
	mu     sync.Mutex
	name   string // where the process ends, or ""
	nth    int    // the pass that ends it, from 1
	passed map[string]int
	trace  *os.File // nil for none
}

// Open reads where to end from a point such as "redis.record.after#2" (without a number the first pass, empty nowhere),
// and appends each point that is passed to the trace file, one a line with the number of its pass; empty for no trace.
func Open(at, trace string) (*Points, error) {
	p := &Points{nth: 1, passed: map[string]int{}}
	var number string
	var found bool
	if p.name, number, found = strings.Cut(at, "#"); found {
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("failpoint %q: after # a number of 1 or more is needed", at)
		}
		p.nth = n
	}
	if trace == "" {
		return p, nil
	}
	f, err := os.OpenFile(trace, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the trace of failpoints: %w", err)
	}
	p.trace = f
	return p, nil
}

// Pass is the moment: it notes it, and ends the process when this is where it is to end. No deferred function runs then,
// no connection is closed by the process, nothing is flushed.
func (p *Points) Pass(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.passed[name]++
	n := p.passed[name]
	if p.trace != nil {
		_, _ = fmt.Fprintf(p.trace, "%s#%d\n", name, n) // one write: it is whole even when the next line is the end
	}
	if name == p.name && n == p.nth {
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
		select {} // the signal is on its way; nobody goes on, and nobody else passes a point
	}
}

// around passes the point before a call and the one after it.
func (p *Points) around(name string, call func() error) error {
	p.Pass(name + ".before")
	err := call()
	p.Pass(name + ".after")
	return err
}

// through is around for a call with a result.
func through[T any](p *Points, name string, call func() (T, error)) (T, error) {
	p.Pass(name + ".before")
	v, err := call()
	p.Pass(name + ".after")
	return v, err
}
