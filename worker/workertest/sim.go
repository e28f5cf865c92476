package workertest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/worker"
)

// Labels that the worker puts on containers, as the contract names them.
const (
	labelOurs    = "roboco.sandbox"
	labelOwner   = "roboco.sandbox.owner"
	labelCell    = "roboco.sandbox.cell"
	labelEngine  = "roboco.sandbox.engine"
	labelEpoch   = "roboco.sandbox.epoch"
	labelBorn    = "roboco.sandbox.born"
	labelProject = "roboco.sandbox.project"
	labelTask    = "roboco.sandbox.task"
	labelOwnerID = "roboco.sandbox.owner-id"
	labelPool    = "roboco.sandbox.pool" // born for nobody, in a pool
)

// agentPrefix begins the name of every agent's own container.
const agentPrefix = "roboco-agent-"

// SimConfig of a Sim. Zero fields have the defaults given.
type SimConfig struct {
	Seed uint64
	// Jitter is the longest time that an operation takes when nothing is wrong; 5 ms.
	Jitter time.Duration
	// ReadyFrom and ReadyTo bound the time from start to a server that answers; 10 and 60 ms.
	ReadyFrom, ReadyTo time.Duration
	// PullTo is the longest pull of an image that is absent; 340 ms.
	PullTo time.Duration
	// Memory of the host in bytes; 0 says that it is not known.
	Memory int64
}

// Sim is a container engine that exists in memory only. It is deterministic from its seed as far as the order in which
// its callers come is. It implements worker.Runtime; all methods are safe for concurrent use.
type Sim struct {
	cfg  SimConfig
	dice *Dice

	mu        sync.Mutex
	boxes     map[string]*box   // by ID
	names     map[string]string // name -> ID
	agents    map[string]string // slug -> ID of the agent's own container
	networks  map[string]bool
	feeds     map[*feed]struct{}
	truth     truth
	count     uint64
	lastStart time.Time
	faults    faults
	pulls     map[string]*pull
	tags      map[string]int // how often an image's name was given to another content
	derived   []engines.Image

	closing chan struct{}
	wg      sync.WaitGroup
}

var _ worker.Runtime = (*Sim)(nil)

// box is one container as the engine knows it.
type box struct {
	engines.Container
	order    uint64 // of creation
	memory   int64  // its limit, in bytes
	ready    time.Time
	from     string          // the image it was made from, which may be derived of Image
	features map[string]bool // active in this life
	prepared bool            // the agent's login was made in this life
	stopped  chan struct{}   // closed when it runs no more
}

// NewSim makes an engine without containers and without faults. Close it.
func NewSim(cfg SimConfig) *Sim {
	if cfg.Jitter == 0 {
		cfg.Jitter = 5 * time.Millisecond
	}
	if cfg.ReadyTo == 0 {
		cfg.ReadyFrom, cfg.ReadyTo = 10*time.Millisecond, 60*time.Millisecond
	}
	if cfg.PullTo == 0 {
		cfg.PullTo = 340 * time.Millisecond
	}
	return &Sim{
		cfg: cfg, dice: NewDice(cfg.Seed, 1),
		boxes: map[string]*box{}, names: map[string]string{}, agents: map[string]string{}, networks: map[string]bool{},
		feeds: map[*feed]struct{}{}, truth: newTruth(), faults: faults{slow: map[string]time.Duration{}},
		pulls: map[string]*pull{}, tags: map[string]int{}, closing: make(chan struct{}),
	}
}

// Close ends what is under way and waits for it. Calls after Close fail.
func (s *Sim) Close() {
	s.mu.Lock()
	select {
	case <-s.closing:
	default:
		close(s.closing)
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// newID gives the next full container ID. s.mu is held.
func (s *Sim) newID() string {
	s.count++
	sum := sha256.Sum256(fmt.Appendf(nil, "%d/%d", s.cfg.Seed, s.count))
	return hex.EncodeToString(sum[:])
}

// put adds a created container. s.mu is held, and the name is known to be free.
func (s *Sim) put(name, image string, labels, env map[string]string) *box {
	b := &box{Container: engines.Container{
		ID: s.newID(), Name: name, Image: image, Labels: maps.Clone(labels), Env: maps.Clone(env), Created: time.Now(),
	}}
	b.order = s.count
	s.boxes[b.ID], s.names[name] = b, b.ID
	s.truth.created(b)
	return b
}

// run starts a life of a container. s.mu is held.
func (s *Sim) run(b *box) {
	now := time.Now()
	if !now.After(s.lastStart) {
		now = s.lastStart.Add(time.Nanosecond)
	}
	s.lastStart = now
	b.FirstLife = b.StartedAt == ""
	b.Running, b.StartedAt, b.ExitCode = true, now.UTC().Format(time.RFC3339Nano), 0
	b.ready = now.Add(s.dice.Between(s.cfg.ReadyFrom, s.cfg.ReadyTo))
	b.features, b.prepared, b.stopped = map[string]bool{}, false, make(chan struct{})
	s.tell(b, engines.Started)
}

// halt ends a life of a container and tells the feeds. s.mu is held.
func (s *Sim) halt(b *box, code int) {
	if !b.Running {
		return
	}
	b.Running, b.Paused, b.FirstLife, b.ExitCode = false, false, false, code
	close(b.stopped)
	s.tell(b, engines.Died)
}

// drop takes a container away. s.mu is held.
func (s *Sim) drop(b *box) {
	s.halt(b, 137)
	delete(s.boxes, b.ID)
	delete(s.names, b.Name)
	s.tell(b, engines.Destroyed)
}

// full is what an inspect reports.
func (b *box) full() engines.Container {
	c := b.Container
	c.Labels, c.Env, c.Addrs = maps.Clone(b.Labels), maps.Clone(b.Env), []string{addrOf(b.ID)}
	return c
}

// brief is what a listing reports.
func (b *box) brief() engines.Container {
	return engines.Container{
		ID: b.ID, Name: b.Name, Image: b.Image, Labels: maps.Clone(b.Labels), Created: b.Created, Running: b.Running,
	}
}
