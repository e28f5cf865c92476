package workertest

import (
	"github.com/roboco/sandboxd/engines"
)

// Ending is how a container dies out of band.
type Ending int

// The endings.
const (
	Exits    Ending = iota // it stops and stays, stopped
	Restarts               // it stops and runs again at once, its memory empty
	Vanishes               // somebody removes it
	endings
)

// AgentUp starts a new container of an agent, in place of a former one, and returns its owner string.
func (s *Sim) AgentUp(slug string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.agentGone(slug, true)
	b := s.put(agentPrefix+slug, "agent", nil, nil)
	s.agents[slug] = b.ID
	return s.agentLives(slug, b)
}

// AgentAgain starts the agent's own container once more: the same ID, another life. Without one it is AgentUp.
func (s *Sim) AgentAgain(slug string) string {
	s.mu.Lock()
	b := s.boxes[s.agents[slug]]
	if b == nil {
		s.mu.Unlock()
		return s.AgentUp(slug)
	}
	defer s.mu.Unlock()
	s.agentGone(slug, false)
	return s.agentLives(slug, b)
}

func (s *Sim) agentLives(slug string, b *box) string {
	s.run(b)
	s.truth.ownerUp(slug, b.Owner())
	return b.Owner()
}

// AgentDown ends the agent's own container, and removes it if told so; it returns the owner that has gone, or "".
func (s *Sim) AgentDown(slug string, remove bool) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.agentGone(slug, remove)
}

// agentGone is AgentDown with s.mu held.
func (s *Sim) agentGone(slug string, remove bool) (owner string) {
	b := s.boxes[s.agents[slug]]
	if b == nil {
		return ""
	}
	if b.Running {
		owner = b.Owner()
		s.truth.ownerDown(owner)
		s.halt(b, 137)
	}
	if remove {
		s.drop(b)
		delete(s.agents, slug)
	}
	return owner
}

// AgentOwner is the owner that lives now, or "": the truth, without faults.
func (s *Sim) AgentOwner(slug string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.agentOwner(slug)
}

func (s *Sim) agentOwner(slug string) string {
	if b := s.boxes[s.agents[slug]]; b != nil && b.Running {
		return b.Owner()
	}
	return ""
}

// Stranger puts up a container that is none of ours, and returns its ID.
func (s *Sim) Stranger(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.put(name, "stranger", map[string]string{"com.example": "theirs"}, nil)
	s.run(b)
	return b.ID
}

// Kill ends a container out of band; false when it does not run.
func (s *Sim) Kill(id string, how Ending) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.boxes[id]
	if b == nil || !b.Running {
		return false
	}
	s.kill(b, how)
	return true
}

// Pause makes a container's processes stand still, or go on; false when it does not run. Nobody who asks its server gets an
// answer meanwhile.
func (s *Sim) Pause(id string, paused bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.boxes[id]
	if b == nil || !b.Running {
		return false
	}
	if b.Paused = paused; paused {
		s.tell(b, engines.Paused)
	} else {
		s.tell(b, engines.Unpaused)
	}
	return true
}

// KillOne ends one running sandbox container out of band, as the dice say; false when there is none.
func (s *Sim) KillOne(d *Dice) bool {
	return s.killOne(d, func(b *box) bool { return b.Labels[labelOurs] != "" })
}

// KillIdle does so to one that waits in a pool.
func (s *Sim) KillIdle(d *Dice) bool {
	return s.killOne(d, func(b *box) bool { return Waits(b.Container) })
}

func (s *Sim) killOne(d *Dice, which func(*box) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var live []*box
	for _, b := range s.inOrder() {
		if b.Running && which(b) {
			live = append(live, b)
		}
	}
	if len(live) == 0 {
		return false
	}
	s.kill(Pick(d, live), Ending(d.Below(int(endings))))
	return true
}

func (s *Sim) kill(b *box, how Ending) {
	s.truth.died(b)
	switch how {
	case Restarts:
		s.halt(b, 1)
		s.run(b)
	case Vanishes:
		s.drop(b)
	default:
		s.halt(b, 1)
	}
	s.truth.changed(b)
}

// Containers lists every container as an inspect would report it, oldest first: the truth, without faults.
func (s *Sim) Containers() []engines.Container {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []engines.Container
	for _, b := range s.inOrder() {
		out = append(out, b.full())
	}
	return out
}

// OwnedBy says that the container which was born with this password is the agent's: by its label, or, where it was born in a
// pool, by a name that it has borne. Every pooled container that is handed out bears its agent's name by then.
func (s *Sim) OwnedBy(password, slug string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.truth.lives[s.truth.byPassword[password]]
	return password != "" && l != nil && l.OwnedBy(slug)
}
