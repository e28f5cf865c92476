package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/worker/docker"
	"github.com/roboco/sandboxd/worker/workertest"
)

// witness writes down what happens at the Docker engine, from its own event feed, for the checks.
type witness struct {
	cell    string
	runtime *docker.Runtime
	feed    *exec.Cmd
	done    chan error
	over    chan struct{} // closed by close, which ends the learning of passwords
	learns  sync.WaitGroup

	mu      sync.Mutex
	unknown map[string]bool // containers whose passwords are still to be learned
	lives   map[string]*workertest.Life
	owners  map[string]*workertest.OwnerLife
	ours    map[string]int64  // by container ID: when the harness began to end it; its death is out of band
	volumes map[string]string // volume -> container of ours that mounted it
}

// happening is one entry of the engine's event feed.
type happening struct {
	Type, Action string
	Actor        struct {
		ID         string
		Attributes map[string]string
	}
	TimeNano int64 `json:"timeNano"`
}

func newWitness(cell string, rt *docker.Runtime) (*witness, error) {
	w := &witness{
		over: make(chan struct{}), unknown: map[string]bool{}, cell: cell, runtime: rt, done: make(chan error, 1), lives: map[string]*workertest.Life{}, owners: map[string]*workertest.OwnerLife{},
		ours: map[string]int64{}, volumes: map[string]string{},
	}
	// From before now: the feed stands a moment after it was asked for.
	w.feed = exec.Command("docker", "events", "--since", fmt.Sprint(time.Now().Unix()-1), //nolint:gosec,noctx // close ends it
		"--filter", "type=container", "--filter", "type=volume", "--format", "{{json .}}")
	out, err := w.feed.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("listen to the engine's events: %w", err)
	}
	if err := w.feed.Start(); err != nil {
		return nil, fmt.Errorf("listen to the engine's events: %w", err)
	}
	go func() { w.done <- w.listen(out) }()
	return w, nil
}

func (w *witness) listen(feed io.Reader) error {
	lines := bufio.NewScanner(feed)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var h happening
		if err := json.Unmarshal(lines.Bytes(), &h); err != nil {
			return fmt.Errorf("read an event of the engine: %w", err)
		}
		w.note(h)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the engine's events: %w", err)
	}
	return nil
}

// Labels of a sandbox container, as the contract names them.
const labelPrefix = "roboco.sandbox."

func (w *witness) note(h happening) {
	if h.Type == "volume" {
		w.mu.Lock()
		defer w.mu.Unlock()
		if c := h.Actor.Attributes["container"]; h.Action == "mount" && w.lives[c] != nil {
			w.volumes[h.Actor.ID] = c
		}
		return
	}
	at := h.TimeNano / 1000
	if h.Action == "create" && h.Actor.Attributes[labelPrefix+"cell"] == w.cell {
		w.born(h.Actor.ID, h.Actor.Attributes, at)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.lives[h.Actor.ID]
	if l == nil {
		return
	}
	l.Called(h.Actor.Attributes["name"], h.TimeNano/1000)
	killing := w.ours[l.ID]
	switch {
	case h.Action == "die" && l.Removed == 0 && l.Died == 0: // nobody has told it to, or the harness has
		if l.Died = at; killing != 0 {
			l.Dying = killing
		}
	case (h.Action == "kill" || h.Action == "destroy") && l.Removed == 0 && killing == 0:
		l.Removed = at
	case h.Action == "destroy" && l.Removed == 0 && l.Died == 0:
		l.Died, l.Dying = at, killing
	}
}

// born takes a new container in; its password is known from its environment alone, and an engine that is busy may be long in
// telling it: the feed does not wait for that.
func (w *witness) born(id string, attributes map[string]string, at int64) {
	label := func(name string) string { return attributes[labelPrefix+name] }
	l := &workertest.Life{
		ID: id, Name: attributes["name"], Names: []string{attributes["name"]}, Ours: true, Pooled: label("pool") != "", Agent: strings.TrimPrefix(label("owner"), agentPrefix), Engine: label("engine"),
		Task: label("task"), Project: label("project"), Owner: label("owner-id"), Born: label("born"), Epoch: label("epoch"), Created: at,
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lives[id], w.unknown[id] = l, true
	w.learns.Go(func() {
		password := w.learn(id)
		w.mu.Lock()
		defer w.mu.Unlock()
		l.Password = password
		delete(w.unknown, id)
	})
}

// learn asks the engine for a container's password until it answers; empty when the container is gone already.
func (w *witness) learn(id string) string {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		c, err := w.runtime.Inspect(ctx, id)
		cancel()
		if err == nil {
			return c.Env[engines.EnvPassword]
		}
		if errors.Is(err, engines.ErrNotFound) {
			return ""
		}
		select {
		case <-w.over:
			return ""
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// intend notes that the harness is about to end a container; what it gives takes that back.
func (w *witness) intend(id string) (undo func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ours[id] = micros()
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.ours, id)
	}
}

func (w *witness) ownerUp(slug, owner string, at int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.owners[owner] = &workertest.OwnerLife{Agent: slug, Seq: len(w.owners) + 1, Up: at}
}

// ownerDown is noted before the container is ended.
func (w *witness) ownerDown(owner string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o := w.owners[owner]; o != nil && o.Down == 0 {
		o.Down = micros()
	}
}

func (w *witness) truth() workertest.Truth {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := workertest.Truth{Lives: map[string]workertest.Life{}, Owners: map[string]workertest.OwnerLife{}}
	for id, l := range w.lives {
		c := *l
		c.Names = slices.Clone(l.Names)
		t.Lives[id] = c
	}
	for name, o := range w.owners {
		t.Owners[name] = *o
	}
	return t
}

// ownedBy waits where a password seems to be another's: a moment, for the feed may be behind, and for as long as there are
// passwords to be learned, up to a minute.
func (w *witness) ownedBy(password, slug string) bool {
	const pause = 50 * time.Millisecond
	for waited := time.Duration(0); waited < 5*time.Second || (w.learning() && waited < time.Minute); waited += pause {
		if l, ok := w.truth().ByPassword(password); ok && l.OwnedBy(slug) {
			return true
		}
		time.Sleep(pause)
	}
	return false
}

func (w *witness) learning() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.unknown) > 0
}

// mounted gives the volumes that containers of ours had.
func (w *witness) mounted() map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.volumes)
}

// close ends the feed; that it ended before is an error.
func (w *witness) close() error {
	var early error
	select {
	case err := <-w.done:
		early = fmt.Errorf("the engine's event feed broke: %w", err)
	default:
	}
	_ = w.feed.Process.Kill()
	_ = w.feed.Wait() // its error is the kill
	close(w.over)
	w.learns.Wait()
	return early
}
