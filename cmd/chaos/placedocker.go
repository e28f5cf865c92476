package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/worker/docker"
	"github.com/roboco/sandboxd/worker/workertest"
)

const (
	agentPrefix = "roboco-agent-"
	agentImage  = "roboco-sandbox-agent:latest"
	socketOf    = "unix://"
)

// dockerPlace is the real engine. The workers reach it through a relay, the harness without.
type dockerPlace struct {
	cell    string
	runtime *docker.Runtime
	relay   *relay
	witness *witness

	mu     sync.Mutex
	agents map[string]string // slug -> ID of the agent's container
	living map[string]string // slug -> owner that lives
	others []string          // containers that are none of ours
}

func newDockerPlace(ctx context.Context, cell, dir string) (*dockerPlace, error) {
	host := os.Getenv("DOCKER_HOST")
	if host == "" {
		host = socketOf + "/var/run/docker.sock"
	}
	if !strings.HasPrefix(host, socketOf) {
		return nil, fmt.Errorf("DOCKER_HOST is %s: the faults need an engine at a unix socket", host)
	}
	rt, err := docker.Open(ctx, docker.Config{Host: host, Log: zerolog.Nop()})
	if err != nil {
		return nil, err
	}
	p := &dockerPlace{cell: cell, runtime: rt, agents: map[string]string{}, living: map[string]string{}}
	if p.relay, err = newRelay(ctx, filepath.Join(dir, "docker.sock"), strings.TrimPrefix(host, socketOf)); err != nil {
		return nil, errors.Join(err, rt.Close())
	}
	if p.witness, err = newWitness(cell, rt); err != nil {
		p.relay.close()
		return nil, errors.Join(err, rt.Close())
	}
	return p, nil
}

func (p *dockerPlace) worker(simWorker) (program string, args, environ []string) {
	return "", nil, []string{"DOCKER_HOST=" + socketOf + p.relay.socket}
}

func (*dockerPlace) registry() engines.Registry { return engines.Builtin() }

// projects: most work needs redis alone, for its container is up in no time; the first has everything.
func (*dockerPlace) projects() []project {
	return []project{
		{Slug: "p0", Services: []string{"postgres", "redis", "mongo"}, Weight: 1},
		{Slug: "p1", Services: []string{"redis"}, Weight: 4},
		{Slug: "p2", Services: []string{"redis"}, Extensions: map[string][]string{"redis": {"json"}}, Weight: 2},
		{Slug: "p3", Services: []string{"postgres", "redis"}, Weight: 2},
	}
}

func (p *dockerPlace) agentName(i int) string { return fmt.Sprintf("%s-a%d", p.cell, i) }

func (p *dockerPlace) agentUp(slug string) (owner string, err error) {
	if _, err := p.agentDown(slug, true); err != nil {
		return "", err
	}
	at := micros()
	id, err := p.run("--name", agentPrefix+slug, "--network", "none", agentImage)
	if err != nil {
		return "", err
	}
	p.mu.Lock()
	p.agents[slug] = id
	p.mu.Unlock()
	return p.lives(slug, id, at)
}

func (p *dockerPlace) agentAgain(slug string) (owner string, err error) {
	p.mu.Lock()
	id := p.agents[slug]
	p.mu.Unlock()
	if id == "" {
		return p.agentUp(slug)
	}
	if _, err := p.agentDown(slug, false); err != nil {
		return "", err
	}
	at := micros()
	if _, err := begun("start", id); err != nil {
		return "", err
	}
	return p.lives(slug, id, at)
}

// lives notes the life that has just begun.
func (p *dockerPlace) lives(slug, id string, at int64) (owner string, err error) {
	c, err := p.runtime.Inspect(context.Background(), id)
	if err != nil {
		return "", fmt.Errorf("look at the container of %s: %w", slug, err)
	}
	p.witness.ownerUp(slug, c.Owner(), at)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.living[slug] = c.Owner()
	return c.Owner(), nil
}

func (p *dockerPlace) agentDown(slug string, remove bool) (former string, err error) {
	p.mu.Lock()
	id := p.agents[slug]
	former = p.living[slug]
	delete(p.living, slug)
	if remove {
		delete(p.agents, slug)
	}
	p.mu.Unlock()
	p.witness.ownerDown(former)
	switch {
	case id == "":
		return former, nil
	case remove:
		_, err = begun("rm", "-f", "-v", id)
	case former != "":
		_, err = begun("kill", id)
	}
	return former, err
}

func (p *dockerPlace) agentOwner(slug string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.living[slug]
}

func (p *dockerPlace) stranger(name string) (id string, err error) {
	id, err = p.run("--name", name, "--label", "com.example=theirs", "--network", "none", agentImage)
	p.others = append(p.others, id)
	return id, err
}

// run starts a container that the harness is to take away.
func (p *dockerPlace) run(args ...string) (id string, err error) {
	return begun(append([]string{"run", "-d", "--label", "chaos=" + p.cell}, args...)...)
}

// begun runs one docker command that belongs to no context: what is begun is brought to its end.
func begun(args ...string) (string, error) { return cli(context.Background(), nil, args...) }

func (p *dockerPlace) labels() map[string]string {
	return map[string]string{"roboco.sandbox": "1", labelPrefix + "cell": p.cell}
}

func (p *dockerPlace) containers(ctx context.Context) ([]engines.Container, error) {
	found, err := p.runtime.List(ctx, p.labels())
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	ids := slices.Clone(p.others)
	for _, c := range found {
		ids = append(ids, c.ID)
	}
	var all []engines.Container
	for _, id := range ids {
		c, err := p.runtime.Inspect(ctx, id)
		if err != nil && !errors.Is(err, engines.ErrNotFound) {
			return nil, fmt.Errorf("look at a container: %w", err)
		}
		if err == nil {
			all = append(all, c)
		}
	}
	return all, nil
}

func (p *dockerPlace) truth() workertest.Truth { return p.witness.truth() }
func (p *dockerPlace) ownedBy(password, slug string) bool {
	return p.witness.ownedBy(password, slug)
}
func (p *dockerPlace) pause() (mend func()) { return p.relay.hold() }
func (p *dockerPlace) cut()                 { p.relay.cut() }
func (p *dockerPlace) calm()                { p.relay.calm() }

// unrest: the real engine has its own.
func (*dockerPlace) unrest() {}

// slow delays every piece of every call; which operation is not up to a relay.
func (p *dockerPlace) slow(_ int, by time.Duration) (mend func()) {
	p.relay.setDelay(by)
	return func() { p.relay.setDelay(0) }
}

func (p *dockerPlace) fail() (mend func()) {
	p.relay.setRefuses(true)
	return func() { p.relay.setRefuses(false) }
}

// replaceImage: the images are not this run's alone.
func (*dockerPlace) replaceImage(int) bool { return false }

// killOne ends one running sandbox container: it exits, starts anew with nothing in its memory, or vanishes.
func (p *dockerPlace) killOne(d *workertest.Dice) bool {
	return p.killSome(d, func(c engines.Container) bool { return c.Running })
}

func (p *dockerPlace) killIdle(d *workertest.Dice) bool {
	return p.killSome(d, func(c engines.Container) bool { return c.Running && workertest.Waits(c) })
}

func (p *dockerPlace) killSome(d *workertest.Dice, which func(engines.Container) bool) bool {
	found, err := p.runtime.List(context.Background(), p.labels())
	found = slices.DeleteFunc(found, func(c engines.Container) bool { return !which(c) })
	if err != nil || len(found) == 0 {
		return false
	}
	slices.SortFunc(found, func(a, b engines.Container) int { return strings.Compare(a.Name, b.Name) })
	id := workertest.Pick(d, found).ID
	undo := p.witness.intend(id)
	ways := [][]string{{"kill", id}, {"restart", "-t", "0", id}, {"rm", "-f", "-v", id}}
	if _, err := begun(ways[d.Below(len(ways))]...); err != nil { // somebody was faster
		undo()
		return false
	}
	return true
}

// close removes whatever the run has made. What a sandbox leaves when it goes is a violation: volumes, and a second network.
func (p *dockerPlace) close(ctx context.Context) (found []workertest.Violation) {
	bad := func(check, format string, args ...any) {
		found = append(found, workertest.Violation{Check: check, Detail: fmt.Sprintf(format, args...)})
	}
	p.relay.close()
	networks, err := cli(ctx, nil, "network", "ls", "-q", "--filter", "name=^"+p.cell+"$")
	if n := len(strings.Fields(networks)); err != nil || n > 1 {
		bad("R11", "%d networks are called %s (%v)", n, p.cell, err)
	}
	for _, label := range []string{"chaos=" + p.cell, labelPrefix + "cell=" + p.cell} {
		ids, err := cli(ctx, nil, "ps", "-aq", "--filter", "label="+label)
		if err != nil {
			bad("harness", "%v", err)
		}
		for id := range strings.FieldsSeq(ids) {
			if _, err := cli(ctx, nil, "rm", "-f", "-v", id); err != nil {
				bad("harness", "%v", err)
			}
		}
	}
	for volume, container := range p.witness.mounted() {
		if _, err := cli(ctx, nil, "volume", "inspect", volume); err == nil {
			bad("R11", "volume %s of container %s is left", volume, container)
		}
	}
	for id := range strings.FieldsSeq(networks) {
		if err := removeNetwork(ctx, id); err != nil {
			bad("harness", "%v", err)
		}
	}
	if err := errors.Join(p.witness.close(), p.runtime.Close()); err != nil {
		bad("harness", "%v", err)
	}
	return found
}

// removeNetwork removes a network whose containers are gone. The engine lets go of their endpoints a little later; a busy one
// may forget an endpoint, and its network then has none that anybody can see, and cannot go: that is nobody's fault here.
func removeNetwork(ctx context.Context, id string) (err error) {
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if _, err = cli(ctx, nil, "network", "rm", id); err == nil {
			return nil
		}
	}
	left, ierr := cli(ctx, nil, "network", "inspect", "-f", "{{len .Containers}}", id)
	if ierr == nil && strings.TrimSpace(left) == "0" {
		return nil
	}
	return err
}
