package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// seat is the place of one process: whoever sits in it is started again when it ends, as a container's restart policy would.
type seat struct {
	name    string
	command func() *exec.Cmd
	log     *os.File
	facts   *facts

	mu       sync.Mutex
	cmd      *exec.Cmd
	since    time.Time
	asked    string    // "killed" or "told to end": what was done to the present process
	gone     chan bool // closed when the present process has ended
	stopped  bool      // SIGSTOP
	closing  bool
	finished chan bool // closed when nobody is started again
}

// startAge is how old a process may be and still fail for what it needs at its start.
const startAge = 25 * time.Second

// deafAge is how old a process may be, on a busy machine, and still not have said that it takes SIGTERM: the system then
// ends it, as it ends any program.
const deafAge = 5 * time.Second

func ended(p *os.ProcessState, by syscall.Signal) bool {
	w, ok := p.Sys().(syscall.WaitStatus)
	return ok && w.Signaled() && w.Signal() == by
}

// seatOf starts the first process.
func seatOf(name, logs string, f *facts, command func() *exec.Cmd) (*seat, error) {
	log, err := os.OpenFile(filepath.Join(logs, name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", name, err)
	}
	s := &seat{name: name, command: command, log: log, facts: f, finished: make(chan bool)}
	if err := s.start(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	go s.supervise()
	return s, nil
}

func (s *seat) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return os.ErrProcessDone
	}
	s.cmd = s.command()
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt at the keyboard is the harness's affair
	s.since, s.asked, s.stopped, s.gone = time.Now(), "", false, make(chan bool)
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	return nil
}

// supervise waits for one process after the other.
func (s *seat) supervise() {
	defer close(s.finished)
	for {
		err := s.cmd.Wait()
		s.mu.Lock()
		asked, age, closing := s.asked, time.Since(s.since), s.closing
		s.judge(asked, age, err)
		close(s.gone)
		s.mu.Unlock()
		if closing {
			return
		}
		if asked == "" { // as a restart policy that does not run hot
			time.Sleep(200 * time.Millisecond)
		}
		if err := s.start(); err != nil {
			if !errors.Is(err, os.ErrProcessDone) {
				s.facts.bad("harness", "%v", err)
			}
			return
		}
	}
}

// judge says whether a process may end so.
func (s *seat) judge(asked string, age time.Duration, err error) {
	code := s.cmd.ProcessState.ExitCode() // -1: by a signal
	switch {
	case asked == askedKill:
	case code == leakedCode:
		s.facts.bad("G1", "%s left goroutines behind; its log says which", s.name)
	case asked == askedEnd && (code == 0 || age < startAge && code == 1): // told to end before it had begun
	case asked == askedEnd && age < deafAge && ended(s.cmd.ProcessState, syscall.SIGTERM): // before it could hear
		s.facts.count("told to end before they could hear")
	case asked == askedEnd:
		s.facts.bad("R6", "%s was told to end, and ended so: %v", s.name, err)
	case code == 1 && age < startAge && s.facts.wasFaulty(time.Now().Add(-age)): // it may have met the last fault
		s.facts.count("starts that failed, and were repeated")
	default:
		s.facts.bad("R6", "%s ended by itself after %v: %v", s.name, age.Round(time.Millisecond), err)
	}
}

// What may be done to a process so that it ends.
const (
	askedKill = "killed"
	askedEnd  = "told to end"
)

// livesSince says whether the present process was there at that moment already.
func (s *seat) livesSince(then time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.since.Before(then)
}

// kill is SIGKILL.
func (s *seat) kill() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.signal(askedKill, syscall.SIGKILL)
}

// signal is called with s.mu held; false when the process had ended already.
func (s *seat) signal(asked string, sig os.Signal) bool {
	select {
	case <-s.gone:
		return false
	default:
	}
	if s.cmd.Process.Signal(sig) != nil {
		return false
	}
	if asked != "" && s.asked != askedKill {
		s.asked = asked
	}
	return true
}

// end is SIGTERM, and gives what is closed when the process has ended. One that is stopped is not told.
func (s *seat) end() (gone <-chan bool, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || s.asked != "" {
		return nil, false
	}
	return s.gone, s.signal(askedEnd, syscall.SIGTERM)
}

// endWithin ends the process gracefully; one that is too slow is killed, and that is a violation.
func (s *seat) endWithin(limit time.Duration) bool {
	gone, ok := s.end()
	if ok && !waitFor(gone, limit) {
		s.facts.bad("R6", "%s has not ended %v after it was told to", s.name, limit)
		s.kill()
	}
	return ok
}

func waitFor(done <-chan bool, limit time.Duration) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}

// stop is SIGSTOP; the function it gives is SIGCONT. Nil when there is nobody to stop, or it is stopped already.
func (s *seat) stop() (resume func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || s.asked != "" || !s.signal("", syscall.SIGSTOP) {
		return nil
	}
	s.stopped = true
	stopped := s.cmd
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.cmd == stopped {
			s.stopped = false
			s.signal("", syscall.SIGCONT)
		}
	}
}

// close ends the process for good, gracefully where that works within the limit.
func (s *seat) close(limit time.Duration) {
	s.mu.Lock()
	s.closing = true
	if s.stopped {
		s.stopped = false
		s.signal("", syscall.SIGCONT)
	}
	s.mu.Unlock()
	if !s.endWithin(limit) {
		select {
		case <-s.finished:
		case <-time.After(limit):
			s.kill()
		}
	}
	<-s.finished
	_ = s.log.Close()
}
