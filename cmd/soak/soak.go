package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
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

// look is what the system took at one moment.
type look struct {
	tenth       int
	memory      int64 // of Redis, bytes
	goroutines  int64
	files       int64 // open in this process: connections, mostly
	keys, waits int64 // in Redis; and entries in the work stream
}

// soak is one run.
type soak struct {
	options
	system *system.System
	rdb    *redis.Client
	asked  atomic.Int64

	mu    sync.Mutex
	looks []look
	took  time.Duration
}

func newSoak(o options, s *system.System, addr string) *soak {
	return &soak{options: o, system: s, rdb: redis.NewClient(&redis.Options{Addr: addr, PoolSize: 1})}
}

func (s *soak) close() { _ = s.rdb.Close() }

// live lets the agents live until all requests were answered; the first that fails ends the run.
func (s *soak) live(ctx context.Context, progress io.Writer) error {
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
	began := time.Now()
	watching, stop := context.WithCancel(ctx)
	watched := make(chan error, 1)
	go func() { watched <- s.watch(watching, progress) }()
	g, gctx := errgroup.WithContext(ctx)
	for i := range s.agents {
		g.Go(func() error { return s.agent(gctx, chief, "a"+strconv.Itoa(i)) })
	}
	err = g.Wait()
	s.took = time.Since(began)
	stop()
	if werr := <-watched; err == nil {
		err = werr
	}
	return err
}

// agent works on one task after the other: a provision, its hits, the end.
func (s *soak) agent(ctx context.Context, chief *client.Client, slug string) error {
	token, err := s.system.Agent(ctx, slug, "developer")
	if err != nil {
		return err
	}
	dev, err := s.system.Client(token)
	if err != nil {
		return err
	}
	for task := 1; s.asked.Load() < s.requests; task++ {
		data, err := json.Marshal(map[string]string{"task_id": "T-" + strconv.Itoa(task), "project": "soak", "owner": "lease"})
		if err != nil {
			return fmt.Errorf("encode: %w", err)
		}
		_, err = chief.PublishEvent(ctx, client.Event{ID: uuid.NewString(), Source: "soak", Type: "work.started", Subject: slug, Data: data})
		if err != nil {
			return fmt.Errorf("begin work of %s: %w", slug, err)
		}
		for range s.hits + 1 {
			if _, err := dev.RequestSandbox(ctx, client.SandboxRequest{}, nil); err != nil {
				return fmt.Errorf("request of %s: %w", slug, err)
			}
			s.asked.Add(1)
		}
		if _, err := dev.EndWork(ctx, "i_am_done", ""); err != nil {
			return fmt.Errorf("end work of %s: %w", slug, err)
		}
	}
	return nil
}

// watch looks four times a second.
func (s *soak) watch(ctx context.Context, progress io.Writer) error {
	t := time.NewTicker(250 * time.Millisecond)
	defer t.Stop()
	told := -1
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		l, err := s.look(ctx)
		if ctx.Err() != nil || s.asked.Load() >= s.requests { // the last ones to finish are fewer and fewer
			return nil
		}
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.looks = append(s.looks, l)
		s.mu.Unlock()
		if l.tenth > told {
			told = l.tenth
			fmt.Fprintf(progress, "%d requests answered\n", s.asked.Load())
		}
	}
}

func (s *soak) look(ctx context.Context) (l look, err error) {
	l.tenth = int(min(s.asked.Load()*10/s.requests, 9))
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
	if l.waits, err = s.rdb.XLen(ctx, "{soak}:events").Result(); err != nil {
		return l, fmt.Errorf("ask redis: %w", err)
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return l, fmt.Errorf("count open files: %w", err)
	}
	l.files, l.goroutines = int64(len(open)), int64(runtime.NumGoroutine())
	return l, nil
}

// median of one figure over a tenth.
func (s *soak) median(tenth int, of func(look) int64) int64 {
	var all []int64
	for _, l := range s.looks {
		if l.tenth == tenth {
			all = append(all, of(l))
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// report prints the median of each tenth, and says whether the last is flat against the first.
func (s *soak) report(out io.Writer) (flat bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(out, "%d requests of %d agents in %s (%.0f a second), every one answered\n\n", s.asked.Load(), s.agents, s.took.Round(time.Second), float64(s.asked.Load())/s.took.Seconds())
	fmt.Fprintf(out, "| median of a tenth | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 | 10 | last to first |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	flat = true
	for _, f := range []struct {
		name   string
		of     func(look) int64
		judged bool
	}{
		{"Redis's memory, KiB", func(l look) int64 { return l.memory >> 10 }, true},
		{"goroutines", func(l look) int64 { return l.goroutines }, true},
		{"open files", func(l look) int64 { return l.files }, true},
		{"keys in Redis", func(l look) int64 { return l.keys }, false},
		{"entries in the stream", func(l look) int64 { return l.waits }, false},
	} {
		fmt.Fprintf(out, "| %s ", f.name)
		for tenth := range 10 {
			fmt.Fprintf(out, "| %d ", s.median(tenth, f.of))
		}
		first, last := s.median(0, f.of), s.median(9, f.of)
		change := 100 * (float64(last)/float64(max(first, 1)) - 1)
		fmt.Fprintf(out, "| %+.1f %% |\n", change)
		if f.judged && (change > s.within || first == 0) {
			flat = false
			fmt.Fprintf(out, "\n%s grew by more than %.0f %%\n", f.name, s.within)
		}
	}
	return flat
}
