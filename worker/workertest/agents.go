package workertest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/roboco/sandboxd/events"
)

// gatewayName is the inbox of the harness, which is the gateway of all agents.
const gatewayName = "gw"

func slugOf(i int) string { return fmt.Sprintf("a%d", i) }

// agent is one agent's life. One in six has no container of its own, unless it gets one in the midst of its work.
type agent struct {
	c             *chaos
	slug          string
	leased        bool // began without a container
	dice          *Dice
	owner         string // its container's life now, or ""
	task, project string
	engaged       bool
	round         int
	late          sync.WaitGroup // words of its stops that are still to come
	waits         sync.WaitGroup // requests of this round
}

// agents starts all of them; the channel is closed when the last has come to its end.
func (c *chaos) agents(ctx context.Context) <-chan struct{} {
	var all sync.WaitGroup
	for i := range c.o.Agents {
		a := &agent{c: c, slug: slugOf(i), leased: i%6 == 0, dice: NewDice(c.o.Seed, 100+uint64(i))}
		all.Go(func() { ; a.live(ctx) })
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	return done
}

func (a *agent) live(ctx context.Context) {
	defer a.late.Wait()
	if !a.leased {
		a.owner = a.c.sim.AgentUp(a.slug)
	}
	for ; ; a.round++ {
		select {
		case <-a.c.stop:
			return
		case <-ctx.Done():
			return
		default:
		}
		a.begin()
		if a.dice.Once(30) {
			a.spoil(ctx)
		}
		for j := 0; j <= a.dice.Below(3); j++ {
			a.ask(fmt.Sprint(j))
		}
		if !a.dice.Once(3) { // what follows may overtake the requests
			wait(ctx, a.dice.UpTo(400*time.Millisecond))
		} else {
			a.waits.Wait()
		}
		a.turn(ctx)
		a.waits.Wait()
	}
}

// begin starts work, or tells its status once more, which is no end.
func (a *agent) begin() {
	if !a.engaged {
		a.task, a.project, a.engaged = fmt.Sprintf("%s-t%d", a.slug, a.round), fmt.Sprintf("p%d", a.dice.Below(3)), true
	} else if !a.dice.Once(3) {
		return
	}
	a.c.startWork(a.slug, fmt.Sprintf("start:%s:%d", a.slug, a.round), a.task, a.project, a.owner != "")
}

// turn is what happens to the agent at the end of a round.
func (a *agent) turn(ctx context.Context) {
	switch x := a.dice.Below(100); {
	case x < 30:
		a.end()
	case x < 45: // the next work.started comes without an end
		a.engaged = false
	case x < 48:
		a.c.facts.count("operator's removals")
		a.c.sayStopped(a.slug, fmt.Sprintf("operator:%s:%d", a.slug, a.round), "")
	case x < 72 && a.owner == "":
		if a.dice.Once(3) { // gets a container in the midst of its work
			a.c.facts.count("owners that came late")
			a.owner = a.c.sim.AgentUp(a.slug)
			a.ask("up")
		}
	case x < 72:
		for k := 0; k == 0 || a.dice.Once(3); k++ {
			a.die(ctx)
			a.ask(fmt.Sprint("new", k)) // often before anyone has said that the old one stopped
			a.ask(fmt.Sprint("more", k))
			wait(ctx, a.dice.UpTo(300*time.Millisecond))
		}
	}
}

func (a *agent) end() {
	a.c.endWork(a.slug, fmt.Sprintf("end:%s:%d", a.slug, a.round))
	a.engaged = false
	if a.leased && a.owner != "" && a.dice.Once(2) { // works without a container again
		a.c.sim.AgentDown(a.slug, true)
		a.owner = ""
	}
}

// die ends the agent's own container and starts the next: a new one, or the same one again. The word comes at once, late, or never.
func (a *agent) die(ctx context.Context) {
	a.c.facts.count("owners that died")
	former := a.c.sim.AgentDown(a.slug, a.dice.Once(2))
	event := fmt.Sprintf("stopped:%s:%s", a.slug, former)
	switch a.dice.Below(5) {
	case 0:
		a.c.sayStopped(a.slug, event, former)
	case 1, 2:
		a.late.Add(1)
		delay := a.dice.UpTo(1500 * time.Millisecond)
		go func() {
			defer a.late.Done()
			wait(ctx, delay)
			a.c.sayStopped(a.slug, event, former)
		}()
	}
	pause := a.dice.UpTo(20 * time.Millisecond)
	switch x := a.dice.Below(20); {
	case x == 0:
		pause = recordTTL + time.Second
	case x < 10:
		pause = a.dice.UpTo(700 * time.Millisecond)
	}
	wait(ctx, pause)
	if a.dice.Once(3) {
		a.owner = a.c.sim.AgentAgain(a.slug)
	} else {
		a.owner = a.c.sim.AgentUp(a.slug)
	}
}

// spoilOnce adds an entry unless it did so before: an answer that was lost must not count twice.
// KEYS: the work stream, a mark of this entry. ARGV: the entry's fields.
const spoilOnce = `if redis.call('SET', KEYS[2], 1, 'NX') then redis.call('XADD', KEYS[1], '*', unpack(ARGV)) end return 1`

// spoil adds an entry that cannot be decoded.
func (a *agent) spoil(ctx context.Context) {
	fields := Pick(a.dice, [][]any{{"event", "{"}, {"nonsense", "1"}, {"event", `{"type":"sandbox.requested","id":"x"}`}})
	keys := []string{EventsKey(cell), fmt.Sprintf("{%s}:spoilt:%s:%d", cell, a.slug, a.round)}
	for a.c.facts.over.Err() == nil {
		if a.c.adm.Eval(ctx, spoilOnce, keys, fields...).Err() == nil {
			a.c.facts.spoiled()
			return
		}
		if !wait(ctx, 30*time.Millisecond) {
			return
		}
	}
}

// ask publishes a random request of the project and leaves the waiting to another goroutine.
func (a *agent) ask(tag string) {
	q := events.Requested{RequestID: fmt.Sprintf("%s-%d-%s", a.slug, a.round, tag), Role: "developer", Gateway: gatewayName, Extensions: map[string][]string{}}
	for _, p := range projects() {
		if p.Slug != a.project {
			continue
		}
		for _, e := range p.Services {
			if a.dice.Once(2) {
				q.Services = append(q.Services, e)
			}
		}
	}
	for _, e := range q.Services {
		switch {
		case e == "postgres" && a.dice.Once(3):
			q.Extensions[e] = Pick(a.dice, [][]string{{"vector"}, {"postgis"}, {"postgis", "vector"}})
		case e == "redis" && a.dice.Once(5):
			q.Extensions[e] = Pick(a.dice, [][]string{{"bloom"}, {"json"}, {"search"}})
		}
	}
	owner := a.owner
	if owner == "" {
		owner = events.OwnerLease
	}
	collect := a.c.request(a.slug, a.project, q, Asked{Task: a.task, Owner: owner})
	a.waits.Go(func() { ; collect() })
}
