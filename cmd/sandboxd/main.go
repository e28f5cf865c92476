// Command sandboxd is the server: a worker owns the container engine and does what events ask for, a gateway answers
// agents and operators, dev is both in one process for one machine, migrate keeps the database's schema.
//
// All configuration comes from the environment, which is read here and nowhere else. Exit codes: 0 done (a drain after
// SIGTERM included), 1 failed, 2 called or configured wrongly.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/rs/zerolog"

	"github.com/roboco/sandboxd/cmd/internal/system"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	system.CollectLess()
	zerolog.TimeFieldFormat = "2006-01-02T15:04:05.000Z07:00"
	zerolog.DurationFieldFormat = zerolog.DurationFormatString // with its unit
	ctx, stop := untilSignal(context.Background(), os.Stderr)
	code := run(ctx, program{
		environ: os.Environ(), out: os.Stdout, err: os.Stderr, home: os.UserHomeDir, self: os.Args[0],
		terminal: isatty.IsTerminal(os.Stderr.Fd()),
	}, os.Args[1:])
	stop()
	os.Exit(code)
}

// program is what one run of the process was given.
type program struct {
	environ  []string // KEY=value
	out, err io.Writer
	home     func() (string, error) // the user's home folder
	self     string                 // the path by which it was started
	terminal bool                   // err is a terminal: what is written there may have colours
	patience time.Duration          // a start waits this long for a store that does not answer; 15 s
}

// failure is what went wrong while a command did its work, as against how it was called.
type failure struct{ cause error }

// Error is the cause's.
func (f *failure) Error() string { return f.cause.Error() }

// Unwrap gives the cause.
func (f *failure) Unwrap() error { return f.cause }

// run executes one command line and returns the exit code.
func run(ctx context.Context, p program, args []string) int {
	root := p.root()
	root.SetArgs(args)
	root.SetOut(p.out)
	root.SetErr(p.err)
	cmd, err := root.ExecuteContextC(ctx)
	var failed *failure
	var setting *settingError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &failed):
		_, _ = fmt.Fprintf(p.err, "sandboxd: %v\n", err)
		return exitFailed
	case errors.As(err, &setting):
		_, _ = fmt.Fprintf(p.err, "sandboxd: %v\nsandboxd: try 'sandboxd help environment'\n", err)
		return exitUsage
	default:
		_, _ = fmt.Fprintf(p.err, "sandboxd: %v\nsandboxd: try '%s --help'\n", err, cmd.CommandPath())
		return exitUsage
	}
}

// untilSignal ends the context at the first SIGTERM or SIGINT, and the process at the second.
func untilSignal(parent context.Context, told io.Writer) (context.Context, func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case <-signals:
		case <-ctx.Done():
			return
		}
		cancel()
		_, _ = fmt.Fprintln(told, "sandboxd: stopping; once more to stop at once")
		<-signals
		os.Exit(exitFailed)
	}()
	return ctx, func() { signal.Stop(signals); cancel() }
}

// version is this program's, as the build recorded it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "dev"
	}
	return info.Main.Version
}
