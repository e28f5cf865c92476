package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/cmd/internal/system"
	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/worker"
)

// place is a whole sandboxd in this process, over the run's Redis and a container engine.
type place struct {
	*bench

	cell  string
	pool  int // containers that it keeps ready
	whole *system.System
	stop  func() error // takes it down, once
	chief string       // the choreographer's token
}

// at gives the place of a way, which is started when it is first asked for and stays.
func (b *bench) at(ctx context.Context, w way) (*place, error) {
	if p, ok := b.places[w.name]; ok {
		return p, nil
	}
	p, err := b.start(ctx, w, w.name)
	if err != nil {
		return nil, err
	}
	for _, s := range sets() {
		if err := p.opt(ctx, s); err != nil {
			return nil, err
		}
	}
	if w.primed {
		if err := p.warm(ctx); err != nil {
			return nil, err
		}
	}
	if p.pool > 0 {
		if err := p.stock(ctx); err != nil {
			return nil, err
		}
	}
	b.places[w.name] = p
	return p, nil
}

// start brings up one more place, with a worker and a gateway, which is taken down at the run's end.
func (b *bench) start(ctx context.Context, w way, name string) (*place, error) {
	p := &place{bench: b, cell: b.cell(name)}
	for _, n := range w.pool {
		p.pool += n
	}
	return p, p.serve(ctx, system.Config{
		Runtime: b.runtime, Engines: engines.Builtin(), Network: b.network, Workers: 1,
		Change: func(c *worker.Config) {
			// Nobody starts agents here, so no container of theirs is looked for. What sandboxes may use together is more than
			// the limits' sum on a small machine: what is measured is not the line for memory.
			c.ForceLease, c.Creates, c.MemoryTotal, c.QueueTimeout = true, creates(), 1<<40, 10*time.Minute
			w.change(c)
		},
	})
}

// serve starts a system in the place's cell.
func (p *place) serve(ctx context.Context, cfg system.Config) (err error) {
	cfg.Redis, cfg.Bus = p.redis, events.Config{Cell: p.cell, Log: zerolog.Nop(), TTL: time.Hour}
	if p.whole, err = system.Start(ctx, cfg); err != nil {
		return fmt.Errorf("start the system: %w", err)
	}
	p.stop = sync.OnceValue(p.whole.Stop)
	p.closers = append(p.closers, p.stop)
	p.chief, err = p.whole.Agent(ctx, "choreographer-"+p.id, "choreographer")
	return err
}

// opt makes the project of a set, which stays: what a pool holds ready follows the projects.
func (p *place) opt(ctx context.Context, s set) error {
	in := map[string]any{"name": s.name, "sandbox_services": s.engines}
	if s.features != nil {
		in["sandbox_extensions"] = s.features
	}
	if err := p.call(ctx, p.whole.Operator, http.MethodPut, "/api/v1/projects/"+s.name, in); err != nil {
		return fmt.Errorf("make a project: %w", err)
	}
	return nil
}

// full waits until the pool is full, and holds this set ready.
func (p *place) full(ctx context.Context, s set) error {
	if p.pool == 0 {
		return nil
	}
	return await(ctx, 3*time.Minute, "a full pool", func() (bool, error) {
		ready, err := p.ready(ctx)
		if err != nil {
			return false, err
		}
		all := int64(0)
		for _, n := range ready {
			all += n
		}
		return all >= int64(p.pool) && !slices.ContainsFunc(s.engines, func(e string) bool { return ready[s.shelf(e)] == 0 }), nil
	})
}

// shelf names what a set takes of an engine, as ready does.
func (s set) shelf(engine string) string { return engine + " " + strings.Join(s.features[engine], ",") }

// ready counts the containers in the pools by engine and features.
func (p *place) ready(ctx context.Context) (map[string]int64, error) {
	keys, err := p.rdb.Keys(ctx, "{"+p.cell+"}:pool:*").Result()
	if err != nil {
		return nil, fmt.Errorf("look for pools: %w", err)
	}
	ready := map[string]int64{}
	for _, k := range keys {
		n, err := p.rdb.LLen(ctx, k).Result()
		if err != nil {
			return nil, fmt.Errorf("count a pool: %w", err)
		}
		words := strings.Split(k, ":") // of the host, which may have colons of its own, engine, make, features
		if len(words) < 3 {
			return nil, fmt.Errorf("%s is no pool", k)
		}
		ready[words[len(words)-3]+" "+words[len(words)-1]] += n
	}
	return ready, nil
}

// await looks until it is so.
func await(ctx context.Context, limit time.Duration, what string, look func() (bool, error)) error {
	began := time.Now()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if is, err := look(); err != nil || is {
			return err
		}
		if time.Since(began) > limit {
			return fmt.Errorf("waited for %s longer than %s", what, limit)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, ctx.Err())
		case <-tick.C:
		}
	}
}

// call asks, where only success matters.
func (p *place) call(ctx context.Context, token, method, path string, in any) error {
	_, err := p.ask(ctx, token, method, path, in)
	return err
}

// ask is one HTTP call, as any client in any language makes it; an envelope with an error is an error.
func (p *place) ask(ctx context.Context, token, method, path string, in any) (env client.Envelope, err error) {
	var body io.Reader = http.NoBody
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return env, fmt.Errorf("encode: %w", err)
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, p.whole.URL+path, body)
	if err != nil {
		return env, fmt.Errorf("make the call: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := p.http.Do(req)
	if err != nil {
		return env, fmt.Errorf("%s %s: %w", method, path, err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return env, fmt.Errorf("read the answer: %w", err)
	}
	if err := json.Unmarshal(raw, &env); err == nil && env.Failed() || resp.StatusCode >= http.StatusBadRequest {
		return env, fmt.Errorf("%s %s: HTTP %d: %s %s", method, path, resp.StatusCode, env.Message, env.Remediate)
	}
	return env, nil
}
