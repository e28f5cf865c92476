package failpoint_test

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// patience bounds every wait of a case; nothing takes as long unless something is wrong.
const patience = 60 * time.Second

// process is one real subprocess: sandboxd, built with failpoints.
type process struct {
	w     *world
	cmd   *exec.Cmd
	trace string
	up    chan string   // the address it listens at, once; closed when it has ended
	addr  string        // where it listens, after awaitUp
	ended chan struct{} // closed when it has ended

	mu   sync.Mutex
	said []string
}

// start runs `sandboxd command`, which ends itself at the point, or at none when it is empty.
func (w *world) start(command, point string, env ...string) *process {
	w.t.Helper()
	p := &process{
		w: w, cmd: exec.Command(binary(w.t), command), trace: filepath.Join(w.folder, uuid.NewString()),
		up: make(chan string, 1), ended: make(chan struct{}),
	}
	p.cmd.Env = append(append(append([]string{}, w.env...), env...), "SANDBOXD_FAILPOINT="+point, "SANDBOXD_FAILPOINT_TRACE="+p.trace, "SANDBOXD_FAILPOINT_LIFE=1")
	life, err := p.cmd.StdinPipe() // open for as long as this process lives, or the other's cleanup closes it
	require.NoError(w.t, err)
	logs, err := p.cmd.StderrPipe()
	require.NoError(w.t, err)
	require.NoError(w.t, p.cmd.Start())
	go p.read(logs)
	w.t.Cleanup(func() {
		_ = life.Close()
		_ = p.cmd.Process.Kill()
		<-p.ended
		if w.t.Failed() {
			w.t.Logf("sandboxd %s, to end at %q, said:\n%s", command, point, strings.Join(p.lines(), "\n"))
		}
	})
	return p
}

// read keeps what the process says, finds the line that tells where it listens, and waits for its end.
func (p *process) read(logs io.Reader) {
	s := bufio.NewScanner(logs)
	s.Buffer(nil, 1<<20)
	told := false
	for s.Scan() {
		p.mu.Lock()
		p.said = append(p.said, s.Text())
		p.mu.Unlock()
		var line struct{ Probes, Listen string }
		if json.Unmarshal(s.Bytes(), &line) == nil && line.Probes+line.Listen != "" && !told {
			told = true
			p.up <- line.Probes + line.Listen
		}
	}
	_ = p.cmd.Wait()
	close(p.up)
	close(p.ended)
}

func (p *process) lines() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string{}, p.said...)
}

// awaitUp gives the address it listens at, or "" when it has ended before.
func (p *process) awaitUp() string {
	p.w.t.Helper()
	select {
	case p.addr = <-p.up:
		return p.addr
	case <-time.After(patience):
		require.Fail(p.w.t, "sandboxd did not come up", strings.Join(p.lines(), "\n"))
		return ""
	}
}

// hasEnded says that the process is no more.
func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// settled is how long a process goes on after all is done before its point counts as not reached: longer than whatever it
// does from time to time.
const settled = 5 * time.Second

// reached waits for the process's end at the point; it is false when everything is done without that. A process that ends
// in any other way fails the test.
func (p *process) reached(point string, done func() bool) bool {
	p.w.t.Helper()
	var since time.Time
	for !p.hasEnded() {
		switch {
		case !done():
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		case time.Since(since) > settled:
			_ = p.cmd.Process.Kill()
			<-p.ended
			return false
		}
		select {
		case <-p.ended:
		case <-time.After(p.w.times.janitor):
		}
	}
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	require.True(p.w.t, ok && status.Signaled() && status.Signal() == syscall.SIGKILL, "it ended with %v, not by SIGKILL", p.cmd.ProcessState)
	require.Contains(p.w.t, p.passed(), point, "it was killed before it came to the point")
	return true
}

// passed lists the points in the order in which they were passed, each with the number of its pass.
func (p *process) passed() []string {
	text, err := os.ReadFile(p.trace)
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(p.w.t, err)
	return strings.Fields(string(text))
}

// stop ends the process as an operator would, and demands that it ends well.
func (p *process) stop() {
	p.w.t.Helper()
	require.NoError(p.w.t, p.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-p.ended:
	case <-time.After(patience):
		require.Fail(p.w.t, "it does not end after SIGTERM")
	}
	require.True(p.w.t, p.cmd.ProcessState.Success(), "it ended with %v", p.cmd.ProcessState)
}
