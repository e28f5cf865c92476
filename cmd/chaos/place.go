package main

import (
	"context"
	"time"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/worker/workertest"
)

// place is a container engine as the harness holds it: it knows the truth about it, and what may go wrong with it.
type place interface {
	agentHost
	engineFaults
	engineTruth
	engineUse
}

// engineUse is what a run does with an engine.
type engineUse interface {
	// worker is what a worker process needs to use the engine, by way of whatever faults it meets there.
	worker(s simWorker) (program string, args, environ []string)
	// unrest lets small things go wrong all the time, until calm.
	unrest()
	// registry is what can run there.
	registry() engines.Registry
	// projects are what agents work on.
	projects() []project
	// close takes everything away that the run has left there, and says what it should not have left.
	close(ctx context.Context) []workertest.Violation
}

// agentHost runs the agents' own containers.
type agentHost interface {
	// agentUp starts a new container of an agent and gives its owner string.
	agentUp(slug string) (owner string, err error)
	// agentAgain starts the agent's container once more, where it is still there; else it is agentUp.
	agentAgain(slug string) (owner string, err error)
	// agentDown ends it, and gives the owner that has gone, or "".
	agentDown(slug string, remove bool) (former string, err error)
	// agentOwner is the owner that lives now, or "".
	agentOwner(slug string) string
	// agentName is the container's name without its prefix for agent i: nobody else's on this engine.
	agentName(i int) string
}

// engineFaults are what goes wrong with the engine; each fault that lasts gives a function that ends it.
type engineFaults interface { //nolint:interfacebloat // one for each fault
	pause() (mend func())
	slow(op int, by time.Duration) (mend func())
	fail() (mend func())
	cut()
	// killOne ends a sandbox container out of band; false when there is none.
	killOne(d *workertest.Dice) bool
	// killIdle does so to one that nobody has claimed yet.
	killIdle(d *workertest.Dice) bool
	// replaceImage lets another content stand behind the name of one image; false where that cannot be.
	replaceImage(which int) bool
	calm()
}

// engineTruth is what has really happened.
type engineTruth interface {
	// stranger puts up a container that is none of ours under this name and gives its ID.
	stranger(name string) (id string, err error)
	containers(ctx context.Context) ([]engines.Container, error)
	truth() workertest.Truth
	// ownedBy says whether the container that was born with this password is the agent's.
	ownedBy(password, slug string) bool
}

// project is one that agents work on; an agent chooses one Weight times in the sum of all weights.
type project struct {
	Slug       string
	Services   []string
	Extensions map[string][]string
	Weight     int
}

// choose picks a project by its weight.
func choose(d *workertest.Dice, all []project) project {
	total := 0
	for _, p := range all {
		total += p.Weight
	}
	x := d.Below(total)
	for _, p := range all {
		if x -= p.Weight; x < 0 {
			return p
		}
	}
	return all[0]
}
