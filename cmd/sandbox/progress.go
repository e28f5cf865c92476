package main

import (
	"fmt"
	"io"
	"time"

	"github.com/roboco/sandboxd/client"
)

// progress tells who waits what is going on: on a terminal by one line that is drawn over, elsewhere by a line a step.
type progress struct {
	w        io.Writer
	terminal bool
	quiet    bool
	start    time.Time
	last     string
	drawn    bool
}

func newProgress(w io.Writer, terminal, quiet bool) *progress {
	return &progress{w: w, terminal: terminal, quiet: quiet, start: time.Now()}
}

// clearLine moves to the start of the line and empties it.
const clearLine = "\r\x1b[2K"

// tell shows one step.
func (p *progress) tell(step client.Progress) {
	if p.quiet {
		return
	}
	what := step.Stage
	if step.Engine != "" {
		what = step.Engine + ": " + what
	}
	if step.Position > 0 {
		what = step.Words()
	}
	switch {
	case p.terminal:
		_, _ = fmt.Fprintf(p.w, "%s%s (%.1f s)", clearLine, step.Words(), time.Since(p.start).Seconds())
		p.drawn = true
	case what != p.last: // the bytes of a pull would be a line each
		_, _ = fmt.Fprintln(p.w, what)
	}
	p.last = what
}

// end takes the line away.
func (p *progress) end() {
	if p.drawn {
		_, _ = io.WriteString(p.w, clearLine)
	}
}
