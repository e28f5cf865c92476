// Command sandbox is the command line of agents and operators. It speaks to a gateway over HTTP and to nothing else.
//
// Exit codes: 0 done, 1 refused (the gateway said no, and why), 2 used wrongly, 3 the gateway cannot be reached.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/mattn/go-isatty"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	a := &app{
		in: os.Stdin, out: os.Stdout, err: os.Stderr,
		terminal: isatty.IsTerminal(os.Stderr.Fd()),
		url:      os.Getenv("ROBOCO_SANDBOX_URL"),
		token:    os.Getenv("ROBOCO_SANDBOX_TOKEN"),
		ca:       os.Getenv("ROBOCO_SANDBOX_CA"),
	}
	code := a.run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}
