package workertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/state"
	"github.com/roboco/sandboxd/worker"
)

// Mode says which faults happen.
type Mode string

// The modes.
const (
	Calm  Mode = "calm"  // none, but agents' containers die all the same
	Kill  Mode = "kill"  // all but FLUSHALL
	Flush Mode = "flush" // FLUSHALL too; and one more when every sandbox lives
)

// Options of a run. Zero fields have the defaults given.
type Options struct {
	Seed     uint64        // reproduces the schedule of faults and of agents
	Duration time.Duration // of the faults; 20 s. Coming to rest takes about 10 s more
	Mode     Mode          // Kill
	Workers  int           // 6
	Agents   int           // 24
	Gap      time.Duration // the longest pause between two faults; 100 ms
	// Pool is how many ready containers the workers keep, by engine; none by default.
	Pool  map[string]worker.PoolSize
	Redis RedisServer // of this run alone; it is emptied first
	Log   zerolog.Logger
}

// Scaled-down times of a run.
const (
	cell       = "chaos"
	lease      = 600 * time.Millisecond
	claimIdle  = 700 * time.Millisecond
	recordTTL  = 8 * time.Second
	grace      = 1500 * time.Millisecond
	poolTick   = 50 * time.Millisecond
	accept     = 4 * time.Second
	resendIn   = 3 * time.Second
	quietLimit = 60 * time.Second
)

func busConfig(log zerolog.Logger) events.Config {
	return events.Config{
		Cell: cell, Lease: lease, ClaimIdle: claimIdle, Park: 100 * time.Millisecond, TTL: recordTTL,
		ReplyTTL: 2 * time.Minute, Remember: 5 * time.Minute, Accept: accept,
		Attempts: 60, // a worker dies every few 100 ms
		Audit:    true, Log: log,
	}
}

// chaos is one run.
type chaos struct {
	o     Options
	sim   *Sim
	store state.Store
	adm   *redis.Client // of the harness; no fault but Redis's own meets it
	bus   *events.Bus   // likewise
	dice  *Dice         // of the schedule of faults

	stop   chan struct{} // closed when agents are to come to their end
	timers sync.WaitGroup

	mu       sync.Mutex
	live     []*hand
	buried   []*hand
	spawned  int
	faulty   bool
	stranger string
	facts    *facts
}

// Chaos lets agents live on real workers and a real bus while faults happen, waits until nothing is under way, and judges.
// The error is of the harness; what the protocol did wrong is in the report.
func Chaos(ctx context.Context, o Options) (Report, error) {
	c, err := newChaos(ctx, o)
	if err != nil {
		return Report{}, err
	}
	defer c.close()
	inboxCtx, endInbox := context.WithCancel(ctx)
	inbox := make(chan error, 1)
	go func() { inbox <- c.bus.RunInbox(inboxCtx, gatewayName) }()
	defer func() { endInbox(); <-inbox }()

	for range c.o.Workers {
		c.spawn()
	}
	living := c.agents(ctx)
	c.setFaulty(c.o.Mode != Calm)
	c.faults(ctx)
	c.setFaulty(false)
	close(c.stop)
	c.timers.Wait()
	c.sim.Calm()
	select {
	case <-living:
	case <-time.After(quietLimit):
		c.facts.bad("L1", "agents still wait for replies %v after the faults ended", quietLimit)
		c.facts.giveUp()
		<-living
	case <-ctx.Done():
		c.facts.giveUp()
		<-living
		return Report{}, fmt.Errorf("chaos: %w", ctx.Err())
	}
	if c.o.Mode == Flush {
		if err := c.survive(ctx); err != nil {
			return Report{}, err
		}
	}
	c.settle(ctx)
	c.shutdown()
	c.poolsAreGone()
	return c.report(ctx)
}

func newChaos(ctx context.Context, o Options) (*chaos, error) {
	o = o.withDefaults()
	if o.Redis == nil {
		return nil, errors.New("chaos: no redis was given")
	}
	c := &chaos{
		o: o, sim: NewSim(SimConfig{Seed: o.Seed}), dice: NewDice(o.Seed, 2), stop: make(chan struct{}),
		facts: newFacts(),
		adm: redis.NewClient(&redis.Options{
			Addr: o.Redis.Addr(), PoolSize: 2*o.Agents + 10, MaxRetries: -1, ReadTimeout: 2 * time.Second,
		}),
	}
	registry := Engines(c.sim)
	c.store = state.NewMemory(state.Catalog{Services: registry.Names(), Features: registry.Allowed()})
	// Follow and RunInbox block; the pool of this client is large enough for both.
	c.bus = events.New(c.adm, c.adm, busConfig(o.Log))
	if err := c.furnish(ctx); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (o Options) withDefaults() Options {
	if o.Duration == 0 {
		o.Duration = 20 * time.Second
	}
	if o.Mode == "" {
		o.Mode = Kill
	}
	if o.Workers == 0 {
		o.Workers = 6
	}
	if o.Agents == 0 {
		o.Agents = 24
	}
	if o.Gap == 0 {
		o.Gap = 100 * time.Millisecond
	}
	return o
}

// ceilings are how many ready containers there may be, by engine.
func (o Options) ceilings() map[string]int {
	most := map[string]int{}
	for engine, size := range o.Pool {
		most[engine] = size.Ceiling
	}
	return most
}

// furnish makes what there is before anybody asks: an empty Redis, projects, a stranger under one of our names.
func (c *chaos) furnish(ctx context.Context) error {
	if err := c.adm.FlushAll(ctx).Err(); err != nil {
		return fmt.Errorf("chaos: empty redis: %w", err)
	}
	for _, p := range projects() {
		if _, _, err := c.store.PutProject(ctx, p); err != nil {
			return fmt.Errorf("chaos: make project %s: %w", p.Slug, err)
		}
	}
	c.stranger = c.sim.Stranger(c.nameOf("mongo", slugOf(0)))
	if _, err := c.bus.Check(ctx); err != nil {
		return fmt.Errorf("chaos: check redis: %w", err)
	}
	return nil
}

func projects() []state.Project {
	all := []string{"postgres", "redis", "mongo"}
	return []state.Project{
		{Slug: "p0", Name: "p0", Services: all},
		{Slug: "p1", Name: "p1", Services: all[:2]},
		{Slug: "p2", Name: "p2", Services: all, Extensions: map[string][]string{"redis": {"json"}}},
	}
}

// nameOf is what the container of an agent's engine is to be called.
func (c *chaos) nameOf(engine, agent string) string {
	e, _ := Engines(c.sim).Lookup(engine)
	return "roboco-sandbox-" + e.Short + "-" + agent
}

func (c *chaos) setFaulty(on bool) {
	c.mu.Lock()
	c.faulty = on
	c.mu.Unlock()
	if on {
		c.sim.SetOdds(400, 6, 50)
	} else {
		c.sim.SetOdds(0, 0, 0)
	}
}

func (c *chaos) isFaulty() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.faulty
}

func (c *chaos) close() {
	c.shutdown()
	c.sim.Close()
	c.store.Close()
	_ = c.adm.Close()
}

// wait is a pause of the schedule; false when ctx ended.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
