package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/worker/workertest"
	"github.com/roboco/sandboxd/worker/workertest/simwire"
)

// simPlace is the simulated engine. It lives in the harness and outlives every worker.
type simPlace struct {
	sim    *workertest.Sim
	socket string
	stop   context.CancelFunc
	served chan error
}

func newSimPlace(ctx context.Context, seed uint64, dir string) (*simPlace, error) {
	p := &simPlace{sim: workertest.NewSim(workertest.SimConfig{Seed: seed}), socket: filepath.Join(dir, "engine"), served: make(chan error, 1)}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", p.socket)
	if err != nil {
		p.sim.Close()
		return nil, fmt.Errorf("serve the simulated engine: %w", err)
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	p.stop = stop
	go func() { p.served <- simwire.Serve(serving, l, p.sim) }()
	return p, nil
}

func (p *simPlace) worker(s simWorker) (program string, args, environ []string) {
	s.Engine = p.socket
	settings, _ := json.Marshal(s) // of strings and numbers: it cannot fail
	return "/proc/self/exe", []string{workerCommand}, append(os.Environ(), workerSettings+"="+string(settings))
}

func (p *simPlace) registry() engines.Registry { return workertest.Engines(p.sim) }

func (*simPlace) projects() []project {
	all := []string{"postgres", "redis", "mongo"}
	return []project{
		{Slug: "p0", Services: all, Weight: 1},
		{Slug: "p1", Services: all[:2], Weight: 1},
		{Slug: "p2", Services: all, Extensions: map[string][]string{"redis": {"json"}}, Weight: 1},
	}
}

func (p *simPlace) close(context.Context) []workertest.Violation {
	p.stop()
	err := <-p.served
	p.sim.Close()
	var found []workertest.Violation
	if err != nil {
		found = append(found, workertest.Violation{Check: "harness", Detail: err.Error()})
	}
	if n := p.sim.Networks(); len(n) != 1 {
		found = append(found, workertest.Violation{Check: "R11", Detail: fmt.Sprintf("networks %v, there should be one", n)})
	}
	return found
}

func (*simPlace) agentName(i int) string                   { return fmt.Sprintf("a%d", i) }
func (p *simPlace) agentUp(slug string) (string, error)    { return p.sim.AgentUp(slug), nil }
func (p *simPlace) agentAgain(slug string) (string, error) { return p.sim.AgentAgain(slug), nil }
func (p *simPlace) agentOwner(slug string) string          { return p.sim.AgentOwner(slug) }
func (p *simPlace) stranger(name string) (string, error)   { return p.sim.Stranger(name), nil }
func (p *simPlace) truth() workertest.Truth                { return p.sim.Truth() }
func (p *simPlace) ownedBy(password, slug string) bool     { return p.sim.OwnedBy(password, slug) }
func (p *simPlace) killIdle(d *workertest.Dice) bool       { return p.sim.KillIdle(d) }
func (p *simPlace) killOne(d *workertest.Dice) bool        { return p.sim.KillOne(d) }
func (p *simPlace) cut()                                   { p.sim.BreakFeeds() }
func (p *simPlace) calm()                                  { p.sim.Calm() }
func (p *simPlace) agentDown(slug string, remove bool) (string, error) {
	return p.sim.AgentDown(slug, remove), nil
}

func (p *simPlace) containers(context.Context) ([]engines.Container, error) {
	return p.sandboxes(), nil
}

func (p *simPlace) replaceImage(which int) bool {
	var images []string
	for _, e := range p.registry() {
		images = append(images, e.Bare)
		if e.Feature != "" {
			images = append(images, e.Feature)
		}
	}
	p.sim.Retag(images[which%len(images)])
	return true
}

// unrest: one operation in 400 fails, one image in 6 has to be pulled, one pull in 50 fails.
func (p *simPlace) unrest() { p.sim.SetOdds(400, 6, 50) }

func (p *simPlace) pause() (mend func()) {
	p.sim.SetPaused(true)
	return func() { p.sim.SetPaused(false) }
}

func (p *simPlace) fail() (mend func()) {
	p.sim.SetDown(true)
	return func() { p.sim.SetDown(false) }
}

func (p *simPlace) slow(op int, by time.Duration) (mend func()) {
	ops := []string{
		workertest.OpCreate, workertest.OpStart, workertest.OpRename, workertest.OpInspect, workertest.OpList, workertest.OpRemove, workertest.OpQuery,
	}
	name := ops[op%len(ops)]
	p.sim.SetSlow(name, 2*by)
	return func() { p.sim.SetSlow(name, 0) }
}

// sandboxes are all containers but the agents' own.
func (p *simPlace) sandboxes() []engines.Container {
	return slices.DeleteFunc(p.sim.Containers(), func(c engines.Container) bool { return strings.HasPrefix(c.Name, agentPrefix) })
}
