// Command plot reads what was measured, as JSON on its input, and writes it as a picture, an SVG.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	out := flag.String("out", "benchmarks.svg", "the picture, an SVG")
	flag.Parse()
	if err := run(os.Stdin, *out); err != nil {
		fmt.Fprintln(os.Stderr, "plot:", err)
		os.Exit(1)
	}
}

// figure is what is drawn: for each group a bar for each way, as high as it took.
type figure struct {
	Title  string      `json:"title"`
	Groups []string    `json:"groups"` // "postgres"
	Ways   []string    `json:"ways"`   // "pooled"
	Millis [][]float64 `json:"millis"` // by way, then group; 0 where it was not measured
	// Floor is drawn as a line, in milliseconds; 0 for none.
	Floor     float64 `json:"floor"`
	FloorName string  `json:"floor_name"`
}

func run(in io.Reader, out string) error {
	var f figure
	if err := json.NewDecoder(in).Decode(&f); err != nil {
		return fmt.Errorf("read the figure: %w", err)
	}
	if err := f.check(); err != nil {
		return err
	}
	return f.draw(out)
}

func (f figure) check() error {
	if len(f.Groups) == 0 || len(f.Millis) != len(f.Ways) {
		return fmt.Errorf("%d groups and %d ways, but %d rows of numbers", len(f.Groups), len(f.Ways), len(f.Millis))
	}
	for i, row := range f.Millis {
		if len(row) != len(f.Groups) {
			return fmt.Errorf("%s has %d numbers for %d groups", f.Ways[i], len(row), len(f.Groups))
		}
	}
	return nil
}
