package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/cmd/internal/system"
)

type options struct {
	requests              int64
	agents, hits, workers int
	within                float64
}

// look is what the system took at rest, after a tenth of the requests.
type look struct {
	memory     int64 // of Redis, bytes
	goroutines int64
	files      int64 // open in this process: connections, mostly
	keys       int64 // in Redis
}

// soak is one run.
type soak struct {
	options
	system *system.System
	rdb    *redis.Client
	asked  atomic.Int64
	agents []*agent
	looks  []look // one for each tenth
	took   time.Duration
}

func newSoak(o options, s *system.System, addr string) *soak {
	return &soak{options: o, system: s, rdb: redis.NewClient(&redis.Options{Addr: addr, PoolSize: 1})}
}

func (s *soak) close() { _ = s.rdb.Close() }

// tenths is how many times the system is let come to rest, and looked at.
const tenths = 10

// live lets the agents live until all requests were answered; the first that fails ends the run.
func (s *soak) live(ctx context.Context, progress io.Writer) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	for tenth := range int64(tenths) {
		began := time.Now()
		g, gctx := errgroup.WithContext(ctx)
		for _, a := range s.agents {
			g.Go(func() error {
				for s.asked.Load() < s.requests*(tenth+1)/tenths {
					if err := a.work(gctx); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			return err //nolint:wrapcheck // it is the agent's own
		}
		s.took += time.Since(began)
		fmt.Fprintf(progress, "%d requests answered\n", s.asked.Load())
		l, err := s.rest(ctx)
		if err != nil {
			return err
		}
		s.looks = append(s.looks, l)
	}
	return nil
}

// begin makes the project and the agents.
func (s *soak) begin(ctx context.Context) error {
	operator, err := s.system.Client(s.system.Operator)
	if err != nil {
		return err
	}
	_, err = operator.PutProject(ctx, client.Project{Slug: "soak", Name: "soak", Services: []string{"postgres", "redis", "mongo"}})
	if err != nil {
		return fmt.Errorf("make the project: %w", err)
	}
	token, err := s.system.Agent(ctx, "conductor", "choreographer")
	if err != nil {
		return err
	}
	chief, err := s.system.Client(token)
	if err != nil {
		return err
	}
	for i := range s.options.agents {
		a := &agent{soak: s, chief: chief, slug: "a" + strconv.Itoa(i)}
		if token, err = s.system.Agent(ctx, a.slug, "developer"); err != nil {
			return err
		}
		if a.dev, err = s.system.Client(token); err != nil {
			return err
		}
		s.agents = append(s.agents, a)
	}
	return nil
}

// agent works on one task after the other.
type agent struct {
	*soak
	chief, dev *client.Client
	slug       string
	tasks      int
}

// work is one task: a provision, its hits, the end.
func (a *agent) work(ctx context.Context) error {
	a.tasks++
	data, err := json.Marshal(map[string]string{"task_id": "T-" + strconv.Itoa(a.tasks), "project": "soak", "owner": "lease"})
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	_, err = a.chief.PublishEvent(ctx, client.Event{ID: uuid.NewString(), Source: "soak", Type: "work.started", Subject: a.slug, Data: data})
	if err != nil {
		return fmt.Errorf("begin work of %s: %w", a.slug, err)
	}
	for range a.hits + 1 {
		if _, err := a.dev.RequestSandbox(ctx, client.SandboxRequest{}, nil); err != nil {
			return fmt.Errorf("request of %s: %w", a.slug, err)
		}
		a.asked.Add(1)
	}
	if _, err := a.dev.EndWork(ctx, "i_am_done", ""); err != nil {
		return fmt.Errorf("end work of %s: %w", a.slug, err)
	}
	return nil
}

// rest waits until what is kept for a while has lapsed, and the stream is empty, and looks.
func (s *soak) rest(ctx context.Context) (l look, err error) {
	t := time.NewTimer(remember + replyTTL)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return l, fmt.Errorf("soak: %w", ctx.Err())
	case <-t.C:
	}
	if waits, err := s.rdb.XLen(ctx, "{soak}:events").Result(); err != nil || waits > 0 {
		return l, fmt.Errorf("%d entries are left in the stream at rest (%w)", waits, err)
	}
	text, err := s.rdb.Info(ctx, "memory").Result()
	if err != nil {
		return l, fmt.Errorf("ask redis: %w", err)
	}
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "used_memory:"); ok {
			if l.memory, err = strconv.ParseInt(v, 10, 64); err != nil {
				return l, fmt.Errorf("read redis's memory: %w", err)
			}
		}
	}
	if l.keys, err = s.rdb.DBSize(ctx).Result(); err != nil {
		return l, fmt.Errorf("ask redis: %w", err)
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return l, fmt.Errorf("count open files: %w", err)
	}
	l.files, l.goroutines = int64(len(open)), int64(runtime.NumGoroutine())
	return l, nil
}

// report prints what each tenth left, and says whether the last is flat against the first.
func (s *soak) report(out io.Writer) (flat bool) {
	fmt.Fprintf(out, "%d requests of %d agents in %s (%.0f a second), every one answered\n\n", s.asked.Load(), len(s.agents), s.took.Round(time.Second), float64(s.asked.Load())/s.took.Seconds())
	fmt.Fprintf(out, "| at rest after tenth | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 | 10 | last to first |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	var grew []string
	for _, f := range []struct {
		name string
		of   func(look) int64
	}{
		{"Redis's memory, KiB", func(l look) int64 { return l.memory >> 10 }},
		{"keys in Redis", func(l look) int64 { return l.keys }},
		{"goroutines", func(l look) int64 { return l.goroutines }},
		{"open files", func(l look) int64 { return l.files }},
	} {
		fmt.Fprintf(out, "| %s ", f.name)
		for _, l := range s.looks {
			fmt.Fprintf(out, "| %d ", f.of(l))
		}
		first, last := f.of(s.looks[0]), f.of(s.looks[tenths-1])
		change := 100 * (float64(last)/float64(max(first, 1)) - 1)
		fmt.Fprintf(out, "| %+.1f %% |\n", change)
		if change > s.within {
			grew = append(grew, f.name)
		}
	}
	if len(grew) > 0 {
		fmt.Fprintf(out, "\ngrew by more than %.0f %%: %s\n", s.within, strings.Join(grew, ", "))
	}
	return len(grew) == 0
}
