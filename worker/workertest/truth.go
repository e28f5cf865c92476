package workertest

import (
	"slices"
	"strings"
	"time"

	"github.com/roboco/sandboxd/engines"
)

// Life is what became of one container. Times are microseconds since 1970; 0 = it did not happen.
type Life struct {
	ID, Name                                    string // Name as it was last
	Names                                       []string
	Ours                                        bool // carries our label
	Pooled                                      bool // born in a pool: whose it is, and the tenancy, are those of its claim
	Agent, Engine                               string
	Task, Project, Owner, Born, Epoch, Password string
	Created                                     int64
	Claimed                                     int64 // 0: never, or it is not of a pool
	Seen                                        int64 // since when a pooled one has borne another name than the pool's: an agent may know it
	Removed                                     int64 // by whoever uses the Runtime
	Died                                        int64 // out of band, the first time: by then it was dead
	Dying                                       int64 // where it is not known to the moment when it died: until then it was alive
	Looks                                       []int64
}

// Gone is when it was removed or first died, 0 while it lives its first life.
func (l Life) Gone() int64 {
	if l.Died == 0 || l.Removed != 0 && l.Removed < l.Died {
		return l.Removed
	}
	return l.Died
}

// mayBeDead is the first moment at which it may have been gone, 0 while it lives its first life.
func (l Life) mayBeDead() int64 {
	if gone := l.Gone(); l.Dying == 0 || gone != 0 && gone < l.Dying {
		return gone
	}
	return l.Dying
}

// OwnerLife is one life of an agent's own container.
type OwnerLife struct {
	Agent    string
	Seq      int   // the order in which owners came
	Up, Down int64 // microseconds; Down 0 while it lives
}

// Truth is everything that happened at the engine.
type Truth struct {
	Lives  map[string]Life      // by container ID
	Owners map[string]OwnerLife // by owner string
}

// ByPassword finds the container that was born with this password; each has its own.
func (t Truth) ByPassword(password string) (Life, bool) {
	for _, l := range t.Lives {
		if l.Password == password && password != "" {
			return l, true
		}
	}
	return Life{}, false
}

// OwnerDown says whether this owner has gone by then; the lease never goes.
func (t Truth) OwnerDown(owner string, by int64) bool {
	o, known := t.Owners[owner]
	return known && o.Down != 0 && o.Down <= by
}

// OwnerOf is the owner of an agent that lives, or "".
func (t Truth) OwnerOf(agent string) string {
	for name, o := range t.Owners {
		if o.Agent == agent && o.Down == 0 {
			return name
		}
	}
	return ""
}

// Truth copies what has happened so far.
func (s *Sim) Truth() Truth {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := Truth{Lives: make(map[string]Life, len(s.truth.lives)), Owners: make(map[string]OwnerLife, len(s.truth.owners))}
	for id, l := range s.truth.lives {
		c := *l
		c.Looks, c.Names = slices.Clone(l.Looks), slices.Clone(l.Names)
		t.Lives[id] = c
	}
	for name, o := range s.truth.owners {
		t.Owners[name] = *o
	}
	return t
}

// truth is the Sim's own copy, guarded by its lock.
type truth struct {
	lives      map[string]*Life
	owners     map[string]*OwnerLife
	byPassword map[string]string // password -> container ID
}

func newTruth() truth {
	return truth{lives: map[string]*Life{}, owners: map[string]*OwnerLife{}, byPassword: map[string]string{}}
}

func micros() int64 { return time.Now().UnixMicro() }

func (t truth) created(b *box) {
	l := b.Labels
	t.byPassword[b.Env[engines.EnvPassword]] = b.ID
	t.lives[b.ID] = &Life{
		ID: b.ID, Name: b.Name, Names: []string{b.Name}, Ours: l[labelOurs] != "", Pooled: l[labelPool] != "", Agent: strings.TrimPrefix(l[labelOwner], agentPrefix),
		Engine: l[labelEngine], Task: l[labelTask], Project: l[labelProject], Owner: l[labelOwnerID], Born: l[labelBorn],
		Epoch: l[labelEpoch], Password: b.Env[engines.EnvPassword], Created: b.Created.UnixMicro(),
	}
}

func (t truth) changed(b *box) { t.lives[b.ID].Called(b.Name, micros()) }

func (t truth) looked(id string) {
	l := t.lives[id]
	l.Looks = append(l.Looks, micros())
}

func (t truth) removed(b *box) { t.lives[b.ID].Removed = micros() }

func (t truth) died(b *box) {
	if l := t.lives[b.ID]; l.Died == 0 {
		l.Died = micros()
	}
}

func (t truth) ownerUp(agent, owner string) {
	t.owners[owner] = &OwnerLife{Agent: agent, Seq: len(t.owners) + 1, Up: micros()}
}

func (t truth) ownerDown(owner string) {
	if o := t.owners[owner]; o != nil && o.Down == 0 {
		o.Down = micros()
	}
}
