package worker

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/state"
)

// PoolSize is how many ready containers of one engine a host keeps. A ceiling above the floor lets the number follow the
// rate of requests.
type PoolSize struct{ Floor, Ceiling int }

// shelf is one pool of this host, and how many ready containers it is to hold.
type shelf struct {
	pool   events.Pool
	engine engines.Engine
	want   int
}

// plan says which pools this host is to have: for each engine with a size, the features that opted-in projects stand on. It
// is kept for a while.
func (w *Worker) plan(ctx context.Context) ([]shelf, error) {
	p := w.pool
	p.mu.Lock()
	fresh := !p.planned.IsZero() && time.Since(p.planned) < planTicks*w.cfg.PoolTick
	standing := p.shelves
	p.mu.Unlock()
	if fresh || len(w.cfg.Pool) == 0 {
		return standing, nil
	}
	projects, err := w.cfg.Store.Projects(ctx)
	if err != nil {
		return nil, fmt.Errorf("read projects: %w", err)
	}
	var shelves []shelf
	for _, e := range w.cfg.Engines {
		size := w.cfg.Pool[e.Name]
		if size.Ceiling == 0 {
			continue
		}
		more, err := w.planEngine(ctx, e, size, projects, standing)
		if err != nil {
			return nil, err
		}
		shelves = append(shelves, more...)
	}
	p.mu.Lock()
	p.shelves, p.planned = shelves, time.Now()
	p.mu.Unlock()
	return shelves, nil
}

// planEngine shares an engine's size out among the feature sets in demand. One whose image is not there yet is left
// out.
func (w *Worker) planEngine(ctx context.Context, e engines.Engine, size PoolSize, projects []state.Project, standing []shelf) ([]shelf, error) {
	weights := w.pool.demand.weights(e.Name)
	for set := range weights {
		if !standsOn(projects, e.Name, set) { // asked for once, beyond what a project says
			delete(weights, set)
		}
	}
	for _, p := range projects {
		if slices.Contains(p.Services, e.Name) {
			weights[strings.Join(union(p.Extensions[e.Name], nil), ",")] += projectWeight
		}
	}
	for _, s := range standing {
		if set := strings.Join(s.pool.Features, ","); s.pool.Engine == e.Name && weights[set] > 0 {
			weights[set] *= inertia
		}
	}
	want := shareOut(w.pool.size(e.Name, size), weights)
	var shelves []shelf
	for _, set := range slices.Sorted(maps.Keys(want)) {
		var features []string
		if set != "" {
			features = strings.Split(set, ",")
		}
		kind, err := w.makeOf(ctx, e, features)
		if errors.Is(err, engines.ErrNotFound) {
			continue // its image is on its way; the next plan has it
		}
		if err != nil {
			return nil, err
		}
		shelves = append(shelves, shelf{
			pool: events.Pool{Host: w.host, Engine: e.Name, Make: kind, Features: features}, engine: e, want: want[set],
		})
	}
	return shelves, nil
}

const (
	// projectWeight is what a project counts for that nobody works on at present, beside one request of late.
	projectWeight = 0.1
	// inertia is what keeps a pool from being taken down for another one that is in hardly more demand.
	inertia = 1.5
)

func standsOn(projects []state.Project, engine, set string) bool {
	return slices.ContainsFunc(projects, func(p state.Project) bool {
		return slices.Contains(p.Services, engine) && strings.Join(union(p.Extensions[engine], nil), ",") == set
	})
}

// shareOut gives each set its part of n by weight, by the method of the largest remainder.
func shareOut(n int, weights map[string]float64) map[string]int {
	total := 0.0
	for _, x := range weights {
		total += x
	}
	if total == 0 {
		return nil
	}
	type part struct {
		set  string
		n    int
		rest float64
	}
	parts := make([]part, 0, len(weights))
	left := n
	for set, x := range weights {
		whole, rest := math.Modf(float64(n) * x / total)
		parts = append(parts, part{set, int(whole), rest})
		left -= int(whole)
	}
	slices.SortFunc(parts, func(a, b part) int { return cmp.Or(cmp.Compare(b.rest, a.rest), cmp.Compare(a.set, b.set)) })
	out := map[string]int{}
	for i, p := range parts {
		if i < left {
			p.n++
		}
		if p.n > 0 {
			out[p.set] = p.n
		}
	}
	return out
}

// makeOf is what a container of this engine and these features is made of, in a word: another image, or another limit, and
// the pool is another.
func (w *Worker) makeOf(ctx context.Context, e engines.Engine, features []string) (string, error) {
	image, err := w.cfg.Runtime.ImageID(ctx, e.Image(features))
	if err != nil {
		return "", fmt.Errorf("look at the image of %s: %w", e.Name, err)
	}
	raw, err := json.Marshal(map[string]any{
		"image": image, "network": w.cfg.Network, "memory": w.cfg.Memory, "cpus": w.cfg.NanoCPUs, "pids": w.cfg.Pids, "loopback": w.cfg.Loopback,
		"spec": e.Describe(engines.Order{Image: e.Image(features), Features: features, Memory: w.cfg.Memory}),
	})
	if err != nil {
		return "", fmt.Errorf("describe a container of %s: %w", e.Name, err)
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:6]), nil
}

// candidates are the pools that may serve these features, the best one first: just those features, else fewer ones in the
// same image, of which the rest can be activated.
func (p *pool) candidates(e engines.Engine, features []string) []events.Pool {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []events.Pool
	for _, s := range p.shelves {
		if s.engine.Name != e.Name || !covers(features, s.pool.Features) {
			continue
		}
		same := len(s.pool.Features) == len(features)
		if same || e.InPlace && e.Image(s.pool.Features) == e.Image(features) {
			found = append(found, s.pool)
		}
	}
	slices.SortStableFunc(found, func(a, b events.Pool) int { return len(b.Features) - len(a.Features) })
	return found
}
