package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/docker/go-units"
)

// held is what one idle container takes, as the container engine counts it: its processes' memory and its tmpfs.
type held struct {
	engine string
	bytes  int64
}

// memory looks at a pooled set that nobody has claimed.
func (b *bench) memory(ctx context.Context) error {
	p, err := b.at(ctx, poolWay())
	if err != nil {
		return err
	}
	if err := p.full(ctx, fullSet()); err != nil {
		return err
	}
	b.found.memory, err = p.usage(ctx)
	return err
}

func fullSet() set {
	all := sets()
	return all[len(all)-1]
}

// usage asks the engine's statistics for one container of each engine in the place.
func (p *place) usage(ctx context.Context) ([]held, error) {
	all, err := p.runtime.List(ctx, map[string]string{"roboco.sandbox": "1", cellLabel: p.cell})
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	ids := map[string]string{} // by engine
	for _, c := range all {
		ids[c.Labels["roboco.sandbox.engine"]] = c.ID
	}
	var found []held
	for _, engine := range fullSet().engines {
		text, err := command(ctx, "stats", "--no-stream", "--format", "{{json .}}", ids[engine])
		if err != nil {
			return nil, err
		}
		var s struct{ MemUsage string }
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			return nil, fmt.Errorf("statistics of %s: %w", engine, err)
		}
		used, _, _ := strings.Cut(s.MemUsage, " / ")
		bytes, err := units.RAMInBytes(used)
		if err != nil {
			return nil, fmt.Errorf("statistics of %s: %w", engine, err)
		}
		found = append(found, held{engine: engine, bytes: bytes})
	}
	return found, nil
}
