package worker_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events/eventstest"
	"github.com/roboco/sandboxd/worker"
	"github.com/roboco/sandboxd/worker/workertest"
)

// stage is a rig on a simulated container engine and an embedded Redis, whose steps can be stopped: what otherwise needs
// luck is brought about. Workers here have short leases and no ticking janitor.
type stage struct {
	*rig
	sim *workertest.Sim
}

func newStage(t *testing.T, change ...func(*rig)) *stage {
	t.Helper()
	sim := workertest.NewSim(workertest.SimConfig{Seed: 1, Jitter: time.Millisecond, PullTo: time.Millisecond})
	t.Cleanup(sim.Close)
	s := &stage{sim: sim}
	s.rig = prepare(t, eventstest.StartEmbedded(t), func(r *rig) {
		r.cfg.Runtime, r.cfg.Engines = sim, workertest.Engines(sim)
		r.cfg.StopGrace, r.cfg.Beat, r.cfg.Grace = time.Millisecond, 100*time.Millisecond, time.Nanosecond
		r.bcfg.Lease, r.bcfg.ClaimIdle, r.bcfg.Park = time.Second, 1200*time.Millisecond, 20*time.Millisecond
		for _, f := range change {
			f(r)
		}
	})
	return s
}

// with starts a worker that meets cues; none when cues is nil.
func (s *stage) with(c *cues) (w *worker.Worker, stop func()) {
	s.t.Helper()
	return s.worker(func(cfg *worker.Config) {
		if c == nil {
			return
		}
		cfg.Runtime, cfg.Bus = &cuedRuntime{s.sim, c}, s.newBus(s.t, cuedRedis{c})
	})
}

// atWork is an agent with a task of project p, which has these services.
func (s *stage) atWork(services ...string) (slug string) {
	s.t.Helper()
	slug = s.slug("a")
	s.project("p", services, nil)
	s.start(slug, "T-1", "p")
	return slug
}

// agentAtWork is the same, in a container of its own.
func (s *stage) agentAtWork() (slug string) {
	s.t.Helper()
	s.sim.AgentUp(s.slug("a"))
	return s.atWork("redis")
}

// boxes lists an agent's sandbox containers: the truth, in the order of their making.
func (s *stage) boxes(slug string) (cs []engines.Container) {
	for _, c := range s.sim.Containers() {
		if c.Labels["roboco.sandbox.owner"] == "roboco-agent-"+slug {
			cs = append(cs, c)
		}
	}
	return cs
}

// box is the agent's only running container of an engine.
func (s *stage) box(slug, engine string) engines.Container {
	s.t.Helper()
	cs := slices.DeleteFunc(s.boxes(slug), func(c engines.Container) bool {
		return c.Labels["roboco.sandbox.engine"] != engine || !c.Running
	})
	require.Len(s.t, cs, 1, engine)
	return cs[0]
}

// empty waits until an agent has no containers.
func (s *stage) empty(slug string) {
	s.t.Helper()
	s.eventually(time.Minute, func() bool { return len(s.boxes(slug)) == 0 }, "containers of %s are left", slug)
}

// pass is one pass of a janitor that meets cues.
func (s *stage) pass(c *cues) error {
	s.t.Helper()
	cfg := s.cfg
	cfg.Bus = s.newBus(s.t)
	if c != nil {
		cfg.Runtime, cfg.Bus = &cuedRuntime{s.sim, c}, s.newBus(s.t, cuedRedis{c})
	}
	_, err := worker.New(cfg).JanitorPass(context.Background())
	return err
}

// cues are what a worker meets at a step: a function, run once, whose error the step fails with. A step is the name of an
// operation of the container engine, or of a script of the bus, with when: "before create", "after record".
type cues struct {
	mu sync.Mutex
	at map[string][]func(arg string) error
}

func (c *cues) on(step string, f func(arg string) error) *cues {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at == nil {
		c.at = map[string][]func(string) error{}
	}
	c.at[step] = append(c.at[step], f)
	return c
}

// always meets a step with f each time, until no is called: others than the one that a schedule waits for may come by.
func (c *cues) always(step string, f func(arg string) error) *cues {
	return c.on(step, func(arg string) error {
		c.always(step, f)
		return f(arg)
	})
}

// no forgets the cues of a step.
func (c *cues) no(step string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.at, step)
}

// meet runs the next function of a step, if there is one.
func (c *cues) meet(step, arg string) error {
	c.mu.Lock()
	var f func(string) error
	if q := c.at[step]; len(q) > 0 {
		f, c.at[step] = q[0], q[1:]
	}
	c.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(arg)
}

// met says that every cue was met.
func (c *cues) met() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, q := range c.at {
		if len(q) > 0 {
			return false
		}
	}
	return true
}

// around is one step with its cues.
func around[T any](c *cues, op, arg string, f func() (T, error)) (T, error) {
	var none T
	if err := c.meet("before "+op, arg); err != nil {
		return none, err
	}
	v, err := f()
	if err != nil {
		return v, err
	}
	if err := c.meet("after "+op, arg); err != nil {
		return none, err
	}
	return v, nil
}

func step(c *cues, op, arg string, f func() error) error {
	_, err := around(c, op, arg, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// cuedRuntime is the simulated engine with cues at the steps that the schedules use.
type cuedRuntime struct {
	*workertest.Sim
	c *cues
}

func (r *cuedRuntime) Create(ctx context.Context, l engines.Launch) (string, error) {
	return around(r.c, "create", l.Name, func() (string, error) { return r.Sim.Create(ctx, l) })
}

func (r *cuedRuntime) Start(ctx context.Context, id string) error {
	return step(r.c, "start", id, func() error { return r.Sim.Start(ctx, id) })
}

func (r *cuedRuntime) Rename(ctx context.Context, id, name string) error {
	return step(r.c, "rename", name, func() error { return r.Sim.Rename(ctx, id, name) })
}

func (r *cuedRuntime) Inspect(ctx context.Context, idOrName string) (engines.Container, error) {
	op := "inspect"
	if strings.HasPrefix(idOrName, "roboco-agent-") {
		op = "look"
	}
	return around(r.c, op, idOrName, func() (engines.Container, error) { return r.Sim.Inspect(ctx, idOrName) })
}

func (r *cuedRuntime) Events(ctx context.Context, connected func(), found func(engines.Event)) error {
	return step(r.c, "feed", "", func() error {
		return r.Sim.Events(ctx, func() {
			connected()
			_ = r.c.meet("feed stands", "")
		}, func(e engines.Event) {
			found(e)
			_ = r.c.meet("heard", e.ID)
		})
	})
}

func (r *cuedRuntime) List(ctx context.Context, labels map[string]string) ([]engines.Container, error) {
	return around(r.c, "list", "", func() ([]engines.Container, error) { return r.Sim.List(ctx, labels) })
}

func (r *cuedRuntime) ListNamed(ctx context.Context, prefix string) ([]engines.Container, error) {
	return around(r.c, "list agents", prefix, func() ([]engines.Container, error) { return r.Sim.ListNamed(ctx, prefix) })
}

func (r *cuedRuntime) EnsureImage(ctx context.Context, image string, progress func(engines.PullProgress)) error {
	return step(r.c, "image", image, func() error { return r.Sim.EnsureImage(ctx, image, progress) })
}

func (r *cuedRuntime) Remove(ctx context.Context, id string, grace time.Duration) error {
	return step(r.c, "remove", id, func() error { return r.Sim.Remove(ctx, id, grace) })
}

// cuedRedis gives cues to the scripts that the schedules use. A script is known by an argument that it alone has.
type cuedRedis struct{ c *cues }

// DialHook does nothing.
func (cuedRedis) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook meets the cues of what the guards begin with: the master switch is read there alone.
func (h cuedRedis) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if strings.ToLower(cmds[0].Name()) != "get" {
			return next(ctx, cmds)
		}
		return step(h.c, "switch", "", func() error { return next(ctx, cmds) })
	}
}

// ProcessHook meets the cues of a script.
func (h cuedRedis) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		op := scriptOf(cmd)
		if op == "" {
			return next(ctx, cmd)
		}
		err := step(h.c, op, "", func() error { return next(ctx, cmd) })
		if err != nil {
			cmd.SetErr(err)
		}
		return err
	}
}

func scriptOf(cmd redis.Cmder) string {
	switch strings.ToLower(cmd.Name()) {
	case "evalsha", "eval":
	default:
		return ""
	}
	for _, a := range cmd.Args() {
		raw, ok := a.([]byte)
		text := string(raw)
		switch {
		case !ok:
		case strings.Contains(text, `"hash_owner":`):
			return "begin"
		case strings.Contains(text, `"nonce":`):
			return "claim"
		case strings.Contains(text, `"own_epoch":`):
			return "revoke"
		case strings.Contains(text, `"by":`):
			return "record"
		case strings.HasPrefix(text, `{"slug":"","id":`):
			return "pool" // put in, or retired
		}
	}
	return ""
}
