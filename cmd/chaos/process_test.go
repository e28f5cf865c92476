package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/worker/workertest"
)

// shell seats a process that runs a script.
func shell(t *testing.T, script string) (*seat, *facts) {
	t.Helper()
	f := newFacts()
	t.Cleanup(f.giveUp)
	s, err := seatOf("p", t.TempDir(), f, func() *exec.Cmd { return exec.Command("sh", "-c", script) })
	require.NoError(t, err)
	t.Cleanup(func() { s.close(time.Minute) })
	return s, f
}

func (f *facts) checks() (names []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, v := range f.found {
		names = append(names, v.Check)
	}
	return names
}

// pid is of the process that sits there now.
func (s *seat) pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cmd.Process.Pid
}

const obedient = `trap 'exit 0' TERM; echo up; while :; do sleep 0.02; done`

func TestSeatStartsAgain(t *testing.T) {
	t.Parallel()
	s, f := shell(t, obedient)
	for _, do := range []func() bool{s.kill, func() bool { _, ok := s.end(); return ok }} {
		was := s.pid()
		require.True(t, do())
		require.Eventually(t, func() bool { return s.pid() != was }, time.Minute, 5*time.Millisecond)
	}
	require.Empty(t, f.checks())
}

func TestSeatStops(t *testing.T) {
	t.Parallel()
	s, f := shell(t, obedient)
	resume := s.stop()
	require.NotNil(t, resume)
	require.Nil(t, s.stop(), "it is stopped already")
	_, told := s.end()
	require.False(t, told, "what is stopped cannot be told")
	resume()
	was := s.pid()
	require.True(t, s.kill())
	require.Eventually(t, func() bool { return s.pid() != was }, time.Minute, 5*time.Millisecond)
	resume() // of a process that is no more
	require.Empty(t, f.checks())
}

func TestSeatTellsHowItEnded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, script, check string
		end                 bool
	}{
		{"by itself", "exit 0", "R6", false},
		{"a crash", "exit 2", "R6", false},
		{"a failed start with nothing going on", "exit 1", "R6", false},
		{"a leak", "trap 'exit 4' TERM; while :; do sleep 0.02; done", "G1", true},
		{"an end with an error", "trap 'exit 3' TERM; while :; do sleep 0.02; done", "R6", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, f := shell(t, c.script)
			require.Eventually(t, func() bool {
				if c.end { // the shell may not have set its trap yet: it is told again in its next life
					s.end()
				}
				return slices.Contains(f.checks(), c.check)
			}, time.Minute, 20*time.Millisecond)
		})
	}
}

// A start that fails while stores are away is repeated, and is no violation.
func TestSeatRepeatsStarts(t *testing.T) {
	t.Parallel()
	f := newFacts()
	defer f.giveUp()
	f.setFaulty(true)
	wait := filepath.Join(t.TempDir(), "wait")
	s, err := seatOf("p", t.TempDir(), f, func() *exec.Cmd {
		return exec.Command("sh", "-c", "while [ -e "+wait+" ]; do sleep 0.02; done; exit 1")
	})
	require.NoError(t, err)
	defer s.close(time.Minute)
	repeated := func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.counts["starts that failed, and were repeated"]
	}
	require.Eventually(t, func() bool { return repeated() > 1 }, time.Minute, 20*time.Millisecond)
	require.NoError(t, os.WriteFile(wait, nil, 0o600))
	time.Sleep(time.Second) // whichever process is there by now waits
	before := repeated()
	f.setFaulty(false)
	require.NoError(t, os.Remove(wait))
	require.Eventually(t, func() bool { return repeated() > before }, time.Minute, 20*time.Millisecond)
	require.Eventually(t, func() bool { return len(f.checks()) > 0 }, time.Minute, 20*time.Millisecond, "the next one has no such excuse")
}

func TestSearchLog(t *testing.T) {
	t.Parallel()
	password := "0123456789abcdef0123456789abcdef"
	for _, c := range []struct {
		line string
		bad  bool
	}{
		{"all is well " + password[1:] + "0", false},
		{`{"dsn":"postgres://sandbox:` + password + `@host"}`, true},
		{"panic: runtime error", true},
		{`{"message":"a handler panicked; the entry is left"}`, true},
	} {
		f := newFacts()
		f.giveUp()
		r := &run{logs: t.TempDir(), facts: f}
		s, err := seatOf("p", r.logs, f, func() *exec.Cmd {
			return exec.Command("sh", "-c", "echo '"+c.line+"'; trap 'exit 0' TERM; while :; do sleep 0.02; done")
		})
		require.NoError(t, err)
		truth := workertest.Truth{Lives: map[string]workertest.Life{"c": {Name: "theirs", Password: password}}}
		if c.bad {
			require.Eventually(t, func() bool { r.searchLogs(truth); return len(f.checks()) > 0 }, time.Minute, 20*time.Millisecond, c.line)
			require.Contains(t, f.checks(), "S1")
		} else {
			r.searchLogs(truth)
			require.Empty(t, f.checks())
		}
		s.close(time.Minute)
	}
}
