// Command mutants breaks the protocol in every way of its catalogue, one at a time, and demands that the tests notice. The
// source is not touched: the compiler takes the broken file in its place.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	survivors, err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	}
	if survivors > 0 {
		os.Exit(1)
	}
}

// run tries every mutant whose name matches, prints the table, and returns how many survived.
func run(ctx context.Context, args []string, out, progress io.Writer) (survivors int, err error) {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	only := flags.String("only", "", "a pattern: try only the mutants whose name matches")
	atOnce := flags.Int("j", 2, "how many at once")
	sound := flags.Bool("sound", true, "first see that the tests pass without any mutant; false where that was seen a moment ago")
	root := flags.String("root", ".", "the folder of the module")
	page := flags.String("out", "", "a file to overwrite with the table")
	if err := flags.Parse(args); err != nil {
		return 0, err //nolint:wrapcheck // it says everything
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return 0, fmt.Errorf("-only: %w", err)
	}
	all, err := mutants()
	if err != nil {
		return 0, err
	}
	folder, err := filepath.Abs(*root)
	if err != nil {
		return 0, fmt.Errorf("-root: %w", err)
	}
	var chosen []mutant
	for _, m := range all {
		if pattern.MatchString(m.Name) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return 0, fmt.Errorf("no mutant's name matches %q", *only)
	}
	t := tester{root: folder, progress: progress}
	if *sound {
		if err := t.sound(ctx, chosen); err != nil {
			return 0, err
		}
	}
	verdicts, err := t.tryAll(ctx, chosen, *atOnce)
	if err != nil {
		return 0, err
	}
	var table bytes.Buffer
	survivors = report(io.MultiWriter(out, &table), chosen, verdicts)
	if *page == "" {
		return survivors, nil
	}
	if err := os.WriteFile(*page, append([]byte(heading), table.Bytes()...), 0o644); err != nil { //nolint:gosec // a page of the docs
		return survivors, fmt.Errorf("-out: %w", err)
	}
	return survivors, nil
}

const heading = `# Mutants

What ` + "`make mutants MUTANTS=\"-out docs/mutants.md\"`" + ` found when it was last run; [reliability.md](reliability.md) says how it works.

`

// tryAll tries so many at once.
func (t *tester) tryAll(ctx context.Context, chosen []mutant, atOnce int) ([]verdict, error) {
	verdicts := make([]verdict, len(chosen))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(max(atOnce, 1))
	for i, m := range chosen {
		g.Go(func() error {
			began := time.Now()
			v, err := t.try(ctx, m)
			if err != nil {
				return err
			}
			verdicts[i] = v
			word := "killed"
			if !v.killed() {
				word = "SURVIVED"
			}
			t.say("%-8s %s (%s): %s\n", word, m.Name, time.Since(began).Round(time.Second), strings.Join(v.by, ", "))
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err //nolint:wrapcheck // wrapped where it arose
	}
	return verdicts, nil
}

// report prints what killed each, and counts the survivors.
func report(out io.Writer, chosen []mutant, verdicts []verdict) (survivors int) {
	fmt.Fprintf(out, "| # | the protocol broken | killed by |\n|---|---|---|\n")
	for i, m := range chosen {
		by := strings.Join(verdicts[i].by, ", ")
		if !verdicts[i].killed() {
			survivors++
			by = "**nothing: it survived**"
		}
		fmt.Fprintf(out, "| %d | %s | %s |\n", i+1, m.Name, by)
	}
	fmt.Fprintf(out, "\n%d mutants, %d killed, %d survived\n", len(chosen), len(chosen)-survivors, survivors)
	return survivors
}

// errUnsound: what fails anyway cannot show anything.
var errUnsound = errors.New("the tests fail without any mutant")
