package engines

import (
	"errors"
	"fmt"
	"time"
)

// Launch is one container to create: what the engine says of it, and what the worker adds.
type Launch struct {
	Spec
	Name    string
	Labels  map[string]string
	Network string
	// Memory in bytes, with no swap beyond it; CPUs in thousand millionths (1e9 = one CPU); Pids a count.
	Memory   int64
	NanoCPUs int64
	Pids     int64
	// Loopback publishes the port on 127.0.0.1, at a port the runtime chooses.
	Loopback bool
}

// Container is what a runtime reports of one container. Fields marked (inspect) are empty in listings.
type Container struct {
	ID      string // full
	Name    string
	Image   string // as it was named to the runtime, but the engine's own where it runs one derived of that (LabelImage)
	Labels  map[string]string
	Created time.Time
	Running bool // also while it is paused
	Paused  bool // (inspect)
	// StartedAt is exactly what the runtime gives (inspect); another value means another life.
	StartedAt string
	// FirstLife says that the container runs and has never stopped since it was made (inspect).
	FirstLife bool
	ExitCode  int               // (inspect) of a container that has stopped
	OOMKilled bool              // (inspect)
	Env       map[string]string // (inspect)
	// Addrs are the host:port pairs at which this machine may reach the exposed port, best first (inspect).
	Addrs []string
	// LoopbackPort is the published port on 127.0.0.1, 0 when there is none (inspect).
	LoopbackPort int
}

// Owner names a container's life: its ID and its start. It is the owner string of events and labels.
func (c Container) Owner() string { return c.ID + "@" + c.StartedAt }

// Action is what happened to a container.
type Action string

// The actions that a runtime's event feed tells of: whatever makes an earlier look at the container out of date.
const (
	Died      Action = "die"
	Started   Action = "start"
	Stopped   Action = "stop"
	Killed    Action = "kill" // a signal was sent
	OutOfMem  Action = "oom"
	Paused    Action = "pause"
	Unpaused  Action = "unpause"
	Renamed   Action = "rename"
	Restarted Action = "restart"
	Destroyed Action = "destroy"
)

// Actions lists them all.
func Actions() []Action {
	return []Action{Died, Started, Stopped, Killed, OutOfMem, Paused, Unpaused, Renamed, Restarted, Destroyed}
}

// Event is something that happened to a container, as the runtime's event feed tells it.
type Event struct {
	Action   Action
	ID, Name string
	Labels   map[string]string
	ExitCode int // of Died
	Time     time.Time
}

// PullProgress is how far a pull has come, in bytes; Total is 0 while unknown. Queued is its place in the line while it has
// not begun, 1 for the next.
type PullProgress struct {
	Image       string
	Done, Total int64
	Queued      int
}

// Capacity is what the machine behind a runtime has.
type Capacity struct {
	CPUs      int   // 0 when it is not known
	Memory    int64 // bytes of the machine, 0 when it is not known
	Committed int64 // bytes: the memory limits of all sandbox containers there, of whatever cell, that run or are about to
}

// Errors of a runtime, to be matched with errors.Is. Anything else it returns is permanent.
var (
	// ErrNotFound: there is no such container or image.
	ErrNotFound = errors.New("not found")
	// ErrNameTaken: another container bears the name.
	ErrNameTaken = errors.New("name in use")
	// ErrUnavailable: the runtime did not answer; nothing is known.
	ErrUnavailable = errors.New("container engine does not answer")
	// ErrForeign: the container does not carry our label; it is never touched. Likewise an image.
	ErrForeign = errors.New("not a container of ours")
	// ErrInUse: a container uses the image.
	ErrInUse = errors.New("in use")
)

// PullError says that an image could not be had, and whether trying again may help.
type PullError struct {
	Image     string
	Retryable bool
	Cause     error
}

// Error names the image and the cause.
func (e *PullError) Error() string { return fmt.Sprintf("pull image %s: %v", e.Image, e.Cause) }

// Unwrap gives the cause.
func (e *PullError) Unwrap() error { return e.Cause }

// ExitError says that a container stopped before it was ready.
type ExitError struct {
	Engine    string
	ExitCode  int
	OOMKilled bool
	LogTail   string // the last lines, passwords blanked
}

// Error names the engine, the exit code and the last log lines.
func (e *ExitError) Error() string {
	s := fmt.Sprintf("%s exited with code %d before it was ready", e.Engine, e.ExitCode)
	if e.OOMKilled {
		s += " (killed for lack of memory)"
	}
	if e.LogTail != "" {
		s += "; last log lines: " + e.LogTail
	}
	return s
}

// Instance is what a sandbox's record keeps of one engine beside the container's reference. The bus carries it as
// opaque bytes.
type Instance struct {
	Credentials
	Image string `json:"image"`
}
