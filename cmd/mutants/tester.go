package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// tester runs tests on the module as it is, or with a mutant in it.
type tester struct {
	root string

	mu       sync.Mutex
	progress io.Writer
}

func (t *tester) say(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.progress, format, args...)
}

// verdict is what noticed a mutant.
type verdict struct {
	by []string // tests that failed, and invariants that were violated
}

func (v verdict) killed() bool { return len(v.by) > 0 }

// sound demands that the tests of these mutants pass without them: those of a package in one run.
func (t *tester) sound(ctx context.Context, chosen []mutant) error {
	for _, m := range together(chosen) {
		v, err := t.test(ctx, m, "")
		if err != nil {
			return err
		}
		if v.killed() {
			return fmt.Errorf("%w: %s: %s", errUnsound, m.In, strings.Join(v.by, ", "))
		}
		t.say("%-8s %s %s\n", "sound", m.In, m.Run)
	}
	return nil
}

// together are the tests of all these mutants, a run for each package, and one for those of its that need Docker.
func together(chosen []mutant) (runs []mutant) {
	for _, m := range chosen {
		i := slices.IndexFunc(runs, func(r mutant) bool { return r.In == m.In && r.Full == m.Full })
		switch {
		case i < 0:
			runs = append(runs, mutant{In: m.In, Run: m.Run, Full: m.Full})
		case m.Run == "" || runs[i].Run == "":
			runs[i].Run = "" // all of them
		case !slices.Contains(strings.Split(runs[i].Run, "|"), m.Run):
			runs[i].Run += "|" + m.Run
		}
	}
	return runs
}

// try runs the tests with one mutant in place.
func (t *tester) try(ctx context.Context, m mutant) (verdict, error) {
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return verdict{}, fmt.Errorf("make a folder: %w", err)
	}
	defer os.RemoveAll(dir)
	list, err := m.overlay(t.root, dir)
	if err != nil {
		return verdict{}, err
	}
	if quick := quickest(m); quick.Run != m.Run {
		if v, err := t.test(ctx, quick, list); err != nil || v.killed() {
			return v, err
		}
	}
	return t.test(ctx, m, list)
}

// quickest has only those tests of a package that take seconds, where all of them are to notice the mutant: most are noticed there.
func quickest(m mutant) mutant {
	if m.In == "./events" && m.Run == "" {
		m.Run, m.Full = "TestSuite/embedded", false
	}
	return m
}

// test runs the tests that must notice m; overlay is empty for the module as it is.
func (t *tester) test(ctx context.Context, m mutant, overlay string) (verdict, error) {
	args := []string{"test", "-json", "-count=1", "-failfast", "-timeout", "5m", "-parallel", "8"} // most of their time is waiting
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	if !m.Full {
		args = append(args, "-short")
	}
	if m.Run != "" {
		args = append(args, "-run", m.Run)
	}
	args = append(args, m.In)
	if m.In == "./events" { // a walk that fails is the point: it is neither shrunk for long nor kept for the next run
		args = append(args, "-rapid.nofailfile", "-rapid.shrinktime=2s")
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = t.root
	if m.Full {
		cmd.Env = append(os.Environ(), "REQUIRE_DOCKER=1")
	}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return verdict{}, fmt.Errorf("mutant %q: %w", m.Name, ctx.Err())
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return verdict{}, fmt.Errorf("run the tests: %w", err)
	}
	return read(m, out, errs.String(), err != nil)
}

// violated finds the invariants in a fault run's report, with how often each was violated.
var violated = regexp.MustCompile(`\b([HRILF]\d{1,2}) \((\d+)\)`)

// read finds in the tests' output what failed. A mutant that does not compile has shown nothing, and is an error.
func read(m mutant, out []byte, errs string, failed bool) (verdict, error) {
	var v verdict
	ran := false
	s := bufio.NewScanner(bytes.NewReader(out))
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var e struct{ Action, Test, Output string }
		if json.Unmarshal(s.Bytes(), &e) != nil {
			continue
		}
		switch {
		case e.Action == "pass" && e.Test != "":
			ran = true
		case e.Action == "fail" && e.Test != "":
			ran = true
			v.by = append(v.by, e.Test)
		case e.Action == "build-fail":
			return v, fmt.Errorf("mutant %q does not compile: %s%s", m.Name, errs, out)
		}
		for _, x := range violated.FindAllString(e.Output, -1) {
			if !slices.Contains(v.by, x) {
				v.by = append(v.by, x)
			}
		}
	}
	if !ran && failed && bytes.Contains(out, []byte("panic: test timed out")) {
		v.by = append(v.by, "the tests hang")
	}
	if !ran && !v.killed() {
		return v, fmt.Errorf("mutant %q: no test ran: %s%s", m.Name, errs, out)
	}
	v.by = leaves(v.by)
	return v, nil
}

// leaves drops a test whose subtest is named too.
func leaves(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool {
		return slices.ContainsFunc(names, func(o string) bool { return strings.HasPrefix(o, n+"/") })
	})
}
