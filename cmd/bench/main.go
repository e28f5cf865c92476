// Command bench measures what users of sandboxd wait for, on this machine, beside what the machine itself costs (the
// create and start of a trivial container), and prints a table with ratios: only ratios within one run mean anything.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"time"
)

func main() {
	rounds := flag.Int("rounds", 7, "cold starts and releases of each kind")
	hits := flag.Int("hits", 300, "requests that are hits")
	out := flag.String("out", "", "also write the table to this file")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "bench measures what users of sandboxd wait for, on this machine and with its container engine, beside what the\n"+
			"machine itself costs, and prints a table. It takes minutes.\n\nUsage: bench [flags]")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() > 0 || *rounds < 1 || *hits < 1 {
		fmt.Fprintln(os.Stderr, "bench: it takes no arguments, and rounds and hits are 1 or more; bench --help lists the flags")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *rounds, *hits, *out); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, rounds, hits int, out string) error {
	s, err := start(ctx)
	if err != nil {
		return err
	}
	defer s.stop()
	b := bench{rig: s, rounds: rounds, samples: map[string]samples{}}
	steps := []struct {
		what string
		do   func(context.Context) error
	}{
		{"trivial containers", b.floor},
		{"engines alone, cold", b.alone},
		{"the full set, cold, and its release", b.full},
		{"hits", func(ctx context.Context) error { return b.hits(ctx, hits) }},
	}
	for _, step := range steps {
		fmt.Fprintf(os.Stderr, "measuring %s...\n", step.what)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	text := b.report(fmt.Sprintf("%s/%s, %d CPUs, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), time.Now().Format(time.DateOnly)))
	fmt.Print(text)
	if out == "" {
		return nil
	}
	if err := os.WriteFile(out, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	return nil
}
