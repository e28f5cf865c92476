package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/worker/workertest"
)

// agent is one agent's life. One in six has no container of its own, unless it gets one in the midst of its work.
type agent struct {
	r      *run
	slug   string
	token  string
	client *client.Client
	dice   *workertest.Dice
	lapses *workertest.Dice // of what happens to its replies: when they come is not up to the seed
	leased bool             // began without a container

	owner   string // its container's life now, or ""
	task    string
	project project
	engaged bool
	round   int
	calls   context.Context //nolint:containedctx // its calls end when it dies
	hangUp  context.CancelFunc
	late    sync.WaitGroup // words of its stops that are still to come
	waits   sync.WaitGroup // requests of this round
}

func (r *run) newAgent(ctx context.Context, i int) (*agent, error) {
	slug := r.place.agentName(i)
	made, err := r.operator.CreateAgent(ctx, slug, "developer")
	if err != nil {
		return nil, fmt.Errorf("make agent %s: %w", slug, err)
	}
	a := &agent{r: r, slug: slug, token: made.Token, leased: i%6 == 0, dice: workertest.NewDice(r.o.Seed, 100+uint64(i)), lapses: workertest.NewDice(r.o.Seed, 10_000+uint64(i))} //nolint:gosec // small and positive
	a.hangUp = func() {}
	a.callAnew()
	a.client, err = r.client(made.Token)
	return a, err
}

// liveAgents starts all of them; the channel is closed when the last has come to its end.
func (r *run) liveAgents(ctx context.Context) <-chan struct{} {
	var all sync.WaitGroup
	for _, a := range r.agents {
		all.Go(func() { a.live(ctx) })
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	return done
}

func (a *agent) live(ctx context.Context) {
	defer a.late.Wait()
	if !a.leased {
		a.up(false)
	}
	for ; ; a.round++ {
		select {
		case <-a.r.stop:
			return
		case <-ctx.Done():
			return
		default:
		}
		a.begin()
		if a.dice.Once(30) {
			a.r.spoil(ctx, fmt.Sprintf("%s:%d", a.slug, a.round), a.dice)
		}
		for j := 0; j <= a.dice.Below(3); j++ {
			a.ask()
		}
		if !a.dice.Once(3) { // what follows may overtake the requests
			sleep(ctx, a.dice.UpTo(a.pace()))
		} else {
			a.waits.Wait()
		}
		a.turn(ctx)
		a.waits.Wait()
	}
}

// pace is how long an agent works, at the longest, before something happens to it.
func (a *agent) pace() time.Duration {
	if a.r.o.Engine == engineReal {
		return 8 * time.Second
	}
	return 400 * time.Millisecond
}

// begin starts work, or tells its status once more, which is no end.
func (a *agent) begin() {
	if !a.engaged {
		a.task, a.project, a.engaged = fmt.Sprintf("%s-t%d", a.slug, a.round), choose(a.dice, a.r.all), true
	} else if !a.dice.Once(3) {
		return
	}
	a.startWork(fmt.Sprintf("start:%s:%d", a.slug, a.round))
}

// turn is what happens to the agent at the end of a round.
func (a *agent) turn(ctx context.Context) {
	switch x := a.dice.Below(100); {
	case x < 30:
		a.end()
	case x < 45: // the next work.started comes without an end
		a.engaged = false
	case x < 48:
		a.r.facts.count("operator's removals")
		a.r.insist(func(ctx context.Context) error {
			err := a.r.operator.RemoveSandbox(ctx, a.slug)
			if client.IsStatus(err, http.StatusNotFound) { // nothing is known of it
				return nil
			}
			return err
		})
	case x < 72 && a.owner == "":
		if a.dice.Once(3) { // gets a container in the midst of its work
			a.r.facts.count("owners that came late")
			a.up(false)
			a.ask()
		}
	case x < 72:
		for k := 0; k == 0 || a.dice.Once(3); k++ {
			a.die(ctx)
			a.ask() // often before anyone has said that the old one stopped
			a.ask()
			sleep(ctx, a.dice.UpTo(a.pace()*3/4))
		}
	}
}

func (a *agent) end() {
	a.endWork(fmt.Sprintf("end:%s:%d", a.slug, a.round))
	a.engaged = false
	if a.leased && a.owner != "" && a.dice.Once(2) { // works without a container again
		a.down(true)
	}
}

// die ends the agent's own container, and often its calls with it, and starts the next under the same name: a new one, or the
// same one again. The word comes at once, late, or never.
func (a *agent) die(ctx context.Context) {
	a.r.facts.happened(agentDied)
	if a.dice.Once(2) {
		a.r.facts.happened(agentSilent)
		a.hangUp()
		a.waits.Wait()
		a.callAnew()
	}
	former := a.down(a.dice.Once(2))
	event := fmt.Sprintf("stopped:%s:%s", a.slug, former)
	switch a.dice.Below(5) {
	case 0:
		a.r.sayStopped(a.slug, event, former)
	case 1, 2:
		delay := a.dice.UpTo(1500 * time.Millisecond)
		a.late.Go(func() {
			sleep(ctx, delay)
			a.r.sayStopped(a.slug, event, former)
		})
	}
	pause := a.dice.UpTo(20 * time.Millisecond)
	switch x := a.dice.Below(20); {
	case x == 0 && a.r.o.Engine == engineSim:
		pause = a.r.times.TTL + time.Second
	case x < 10:
		pause = a.dice.UpTo(700 * time.Millisecond)
	}
	sleep(ctx, pause)
	a.up(a.dice.Once(3))
}

// callAnew ends the agent's calls and lets it make new ones.
func (a *agent) callAnew() {
	a.hangUp()
	a.calls, a.hangUp = context.WithCancel(a.r.facts.over)
}

// up starts the agent's container: a new one, or the same one again.
func (a *agent) up(again bool) {
	start := a.r.place.agentUp
	if again {
		start = a.r.place.agentAgain
	}
	owner, err := start(a.slug)
	if err != nil {
		a.r.facts.bad("harness", "%v", err)
	}
	a.owner = owner
}

func (a *agent) down(remove bool) (former string) {
	former, err := a.r.place.agentDown(a.slug, remove)
	if err != nil {
		a.r.facts.bad("harness", "%v", err)
	}
	a.owner = ""
	return former
}

// wanted is a random request of the agent's project.
func (a *agent) wanted() client.SandboxRequest {
	q := client.SandboxRequest{Extensions: map[string][]string{}}
	for _, e := range a.project.Services {
		if a.dice.Once(2) {
			q.Services = append(q.Services, e)
		}
	}
	for _, e := range q.Services {
		switch {
		case e == "postgres" && a.dice.Once(3):
			q.Extensions[e] = workertest.Pick(a.dice, [][]string{{"vector"}, {"postgis"}, {"postgis", "vector"}})
		case e == "redis" && a.dice.Once(5):
			q.Extensions[e] = workertest.Pick(a.dice, [][]string{{"bloom"}, {"json"}, {"search"}})
		}
	}
	return q
}

// ask publishes a random request and leaves the waiting to another goroutine.
func (a *agent) ask() {
	if collect := a.request(a.wanted()); collect != nil {
		a.waits.Go(func() { collect() })
	}
}

// whose is the owner that a sandbox asked for now is to have.
func (a *agent) whose() string {
	if a.owner == "" {
		return events.OwnerLease
	}
	return a.owner
}
