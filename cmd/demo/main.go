// Command demo is a tour of sandboxd for a stranger, on real containers: `make demo`. It starts `sandboxd dev`, asks for
// databases as a coding agent would, uses them, ends the work and shows that nothing is left.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	server := flag.String("sandboxd", ".bin/sandboxd", "the server's program")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "demo is a tour of sandboxd on real containers: it starts \"sandboxd dev\", asks for databases as a coding agent would,\n"+
			"uses them, ends the work and shows that nothing is left.\n\nUsage: demo [flags]")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() > 0 {
		misused("it takes no arguments")
	}
	if _, err := os.Stat(*server); err != nil {
		misused("-sandboxd: " + err.Error())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := tour(ctx, os.Stdout, *server)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "\ndemo: %v\n", err)
		os.Exit(1)
	}
}

// misused ends the program that was called wrongly.
func misused(why string) {
	fmt.Fprintf(os.Stderr, "demo: %s; demo --help lists the flags\n", why)
	os.Exit(2)
}

// guide writes the tour.
type guide struct {
	out  io.Writer
	step int
}

// chapter begins a step.
func (g *guide) chapter(title string) {
	g.step++
	_, _ = fmt.Fprintf(g.out, "\n%d. %s\n", g.step, title)
}

// say writes one line of a step.
func (g *guide) say(format string, args ...any) {
	_, _ = fmt.Fprintf(g.out, "   "+format+"\n", args...)
}

// tour is the whole demo. It leaves nothing behind, whatever happens.
func tour(ctx context.Context, out io.Writer, program string) (err error) {
	g := &guide{out: out}
	_, _ = fmt.Fprintln(out, "sandboxd gives every coding agent its own throwaway databases. This is a tour on real containers.")

	g.chapter("Start sandboxd dev: worker and gateway in one process, nothing needed but Docker")
	s, err := start(ctx, program)
	if err != nil {
		return err
	}
	defer func() {
		if stopErr := s.stop(); err == nil {
			err = stopErr
		}
	}()
	g.say("the gateway answers at %s", s.url)
	g.say("agent %q, a developer, has been given a task of project \"demo\"", s.agent)

	if err := s.visit(ctx, g); err != nil {
		return err
	}

	g.chapter("Stop sandboxd dev")
	if err := s.stop(); err != nil {
		return err
	}
	if err := s.expectNothing(ctx); err != nil {
		return err
	}
	g.say("it drained and exited with 0; no container, volume or network of it is left on this machine")
	_, _ = fmt.Fprintln(out, "\nThat was all of it. README.md says how to use it for real.")
	return nil
}

// milliseconds of a duration, for people.
func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.0f ms", float64(d.Microseconds())/1000)
}
