package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
)

// figure is what bench/plot draws.
type figure struct {
	Title     string      `json:"title"`
	Groups    []string    `json:"groups"`
	Ways      []string    `json:"ways"`
	Millis    [][]float64 `json:"millis"` // by way, then group; 0 where it was not measured
	Floor     float64     `json:"floor"`
	FloorName string      `json:"floor_name"`
}

// figure shows the p50 of each set by each way; ways that nothing was measured of are left out.
func (b *bench) figure(machine string) figure {
	f := figure{Title: "What an agent waits for (" + machine + ")", Floor: millis(b.found.floor(floorOne)), FloorName: "floor, a trivial container"}
	for _, s := range b.sets {
		f.Groups = append(f.Groups, s.title())
	}
	for _, way := range slices.Concat([]string{replaced, testcontainers, dockertest}, []string{upstream, primed, pooled, hit}) {
		times, some := make([]float64, len(b.sets)), false
		for i, s := range b.sets {
			times[i] = millis(b.found.p50(s.name, way))
			some = some || times[i] > 0
		}
		if some {
			f.Ways, f.Millis = append(f.Ways, wayTitle(way)), append(f.Millis, times)
		}
	}
	return f
}

// draw lets the program of the other module write the picture.
func (b *bench) draw(ctx context.Context, path, machine string) error {
	in, err := json.Marshal(b.figure(machine))
	if err != nil {
		return fmt.Errorf("encode the plot: %w", err)
	}
	cmd := exec.CommandContext(ctx, b.plotter, "-out", path) //nolint:gosec // the program that was named
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("draw the plot (`make bench` builds what draws it; -plotter= leaves it out): %w", err)
	}
	return nil
}
