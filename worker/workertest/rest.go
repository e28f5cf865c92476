package workertest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/state"
)

// Rest is everything as it stands when nothing is under way any more.
type Rest struct {
	Containers []engines.Container               // all of them, as an inspect reports them
	Records    map[string]events.Record          // by agent
	Agents     map[string]events.AgentState      // by agent
	Replies    map[string][]events.Reply         // terminal ones, by reply stream
	ReplyOf    map[string]string                 // reply stream -> agent
	Owners     map[string]string                 // who owns a sandbox of each agent now: its live container, the lease, or "" for nobody
	Names      func(engine, agent string) string // what a container is to be called
	Truth      Truth
	Stranger   string // ID of the container that is none of ours

	Claims   map[string]events.Claim // what containers of a pool were claimed for, by ID, as workers see it
	Stored   map[string]state.Claim  // likewise, as the durable store has it
	Pools    map[string][]string     // the IDs that stand in each pool, by its key
	Ceilings map[string]int          // how many ready containers a host may have at most, by engine

	Queued, Pending      int64 // entries of the work stream, and of its pending list
	DeadLetters, Garbage int64 // dead letters, and undecodable entries that were sent
	Consumers, Workers   int   // consumers of the group, and workers that live
	LettersMayDiffer     bool  // a flush has taken dead letters away
}

// restChecks give what is wrong at rest.
func restChecks() []func(Rest, func(check, format string, args ...any)) {
	return []func(Rest, func(string, string, ...any)){
		restDrained, restContainersRecorded, restNames, restOutlivedEnd, restRecordsAlive, restConsumers, restStranger,
		restCredentials, restDeadLetters, restOwners, restOneTerminal, restClaims, restIdle, restPools,
	}
}

// Judge runs every check at rest.
func (r Rest) Judge() []Violation {
	var found []Violation
	for _, check := range restChecks() {
		check(r, func(name, format string, args ...any) {
			found = append(found, Violation{Check: name, Detail: fmt.Sprintf(format, args...)})
		})
	}
	return found
}

// sandbox is a container that is somebody's.
type sandbox struct {
	engines.Container
	agent, engine, born, owner string
}

// sandboxes gives the containers that are somebody's, by their labels, or, where they were born in a pool, by their claims.
func (r Rest) sandboxes() (all []sandbox) {
	for _, c := range r.Containers {
		claim := r.Claims[c.ID]
		switch {
		case c.Labels[labelOurs] == "":
		case c.Labels[labelPool] == "":
			all = append(all, sandbox{c, strings.TrimPrefix(c.Labels[labelOwner], agentPrefix), c.Labels[labelEngine], c.Labels[labelBorn], c.Labels[labelOwnerID]})
		case claim.Slug != "":
			all = append(all, sandbox{c, claim.Slug, c.Labels[labelEngine], claim.Born, claim.Tenancy.Owner})
		}
	}
	return all
}

// L2: the stream and its pending list are empty.
func restDrained(r Rest, bad func(string, string, ...any)) {
	if r.Queued != 0 || r.Pending != 0 {
		bad("L2", "%d entries in the stream, %d pending", r.Queued, r.Pending)
	}
}

// R1: every container is recorded, with its password.
func restContainersRecorded(r Rest, bad func(string, string, ...any)) {
	for _, c := range r.sandboxes() {
		e, ok := r.Records[c.agent].Engines[c.engine]
		switch {
		case !ok || e.ID != c.ID:
			bad("R1", "%s (%s) is not recorded; the record has %q", c.Name, short(c.ID), short(e.ID))
		case PasswordIn(e.Payload) != c.Env[engines.EnvPassword]:
			bad("R1", "%s is recorded with another password than it was born with", c.Name)
		}
	}
}

// R2: every container bears its name.
func restNames(r Rest, bad func(string, string, ...any)) {
	for _, c := range r.sandboxes() {
		if want := r.Names(c.engine, c.agent); c.Name != want {
			bad("R2", "%s is called %s, not %s", short(c.ID), c.Name, want)
		}
	}
}

// R3: nothing has outlived an end.
func restOutlivedEnd(r Rest, bad func(string, string, ...any)) {
	for _, c := range r.sandboxes() {
		if e := r.Agents[c.agent].Ended; e != "" && !before(e, c.born) {
			bad("R3", "%s born %s lives, ended %s", c.Name, c.born, e)
		}
	}
}

// R4: every recorded container is there, unless it died out of band.
func restRecordsAlive(r Rest, bad func(string, string, ...any)) {
	for _, agent := range sortedBy(r.Records) {
		for engine, e := range r.Records[agent].Engines {
			there := slices.ContainsFunc(r.Containers, func(c engines.Container) bool { return c.ID == e.ID })
			if !there && r.Truth.Lives[e.ID].Died == 0 {
				bad("R4", "%s %s: %s is recorded and is not there", agent, engine, short(e.ID))
			}
		}
	}
}

// R5: consumers of dead processes are gone; the one for parked entries may stay.
func restConsumers(r Rest, bad func(string, string, ...any)) {
	if r.Consumers > r.Workers+1 {
		bad("R5", "%d consumers for %d workers", r.Consumers, r.Workers)
	}
}

// R7: the stranger lives.
func restStranger(r Rest, bad func(string, string, ...any)) {
	if r.Stranger != "" && !slices.ContainsFunc(r.Containers, func(c engines.Container) bool { return c.ID == r.Stranger && c.Running }) {
		bad("R7", "the stranger is gone")
	}
}

// R8: no reply holds credentials of what an end has ended.
func restCredentials(r Rest, bad func(string, string, ...any)) {
	for _, stream := range sortedBy(r.Replies) {
		for _, reply := range r.Replies[stream] {
			for engine, e := range reply.Engines {
				l, known := r.Truth.ByPassword(PasswordIn(e.Payload))
				if ended := r.Agents[r.ReplyOf[stream]].Ended; known && ended != "" && !before(ended, l.Born) {
					bad("R8", "%s still has the credentials of %s, born %s, ended %s", stream, engine, l.Born, ended)
				}
			}
		}
	}
}

// R9: exactly what could not be decoded is among the dead letters.
func restDeadLetters(r Rest, bad func(string, string, ...any)) {
	if !r.LettersMayDiffer && r.DeadLetters != r.Garbage {
		bad("R9", "%d dead letters for %d undecodable entries", r.DeadLetters, r.Garbage)
	}
}

// R10: nothing has outlived its owner.
func restOwners(r Rest, bad func(string, string, ...any)) {
	for _, c := range r.sandboxes() {
		if c.owner != r.Owners[c.agent] {
			bad("R10", "%s of %s lives, the owner is %q now", c.Name, c.owner, r.Owners[c.agent])
		}
	}
}

// H5: every reply stream has one terminal entry.
func restOneTerminal(r Rest, bad func(string, string, ...any)) {
	for _, stream := range sortedBy(r.Replies) {
		if n := len(r.Replies[stream]); n != 1 {
			bad("H5", "%s has %d terminal entries", stream, n)
		}
	}
}
