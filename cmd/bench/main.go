// Command bench measures what users of sandboxd wait for, on this machine, beside what the machine itself costs (the
// create and start of a trivial container) and beside what other tools take (bench/peers), and prints tables and what is
// promised: only ratios within one run mean anything. It fails when a promise is broken.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/roboco/sandboxd/cmd/internal/system"
)

func main() {
	system.CollectLess() // as the server does
	o, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err = run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// errBroken: the report says which.
var errBroken = errors.New("a promise is broken")

// run measures all that was asked for, reports it, and leaves nothing on the machine.
func run(ctx context.Context, o options) (err error) {
	b := &bench{options: o, found: newFindings()}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.open(ctx); err != nil {
		return err
	}
	for _, part := range parts() {
		if !o.parts[part.name] {
			continue
		}
		fmt.Fprintf(os.Stderr, "measuring %s...\n", part.what)
		if err := part.do(b, ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	if err := b.publish(ctx); err != nil {
		return err
	}
	if b.found.broken() > 0 {
		return errBroken
	}
	return nil
}
