// Command peers starts databases as other tools do, and says how long each took until it was ready as that tool
// understands it. It reads commands, a line each, and answers each with a line:
//
//	testcontainers postgres=postgres:16-alpine redis=redis:8-alpine
//	ok 3141592653
//
// The number is in nanoseconds. What was started is removed before the answer, so that the next command finds the machine
// as this one did. A command that failed is answered with "error" and the reason. It ends with its input.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"
)

func main() {
	label := flag.String("label", "sandboxd.bench=alone", "the label, NAME=VALUE, of every container made")
	network := flag.String("network", "bridge", "the network that containers of the command line join")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := serve(ctx, *label, *network, os.Stdin, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// serve does the commands that come in, one after another.
func serve(ctx context.Context, label, network string, in io.Reader, out io.Writer) error {
	name, value, ok := strings.Cut(label, "=")
	if !ok {
		return fmt.Errorf("label %q is not NAME=VALUE", label)
	}
	peers, err := open(name, value, network)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	for ctx.Err() == nil && lines.Scan() {
		took, err := obey(ctx, peers, lines.Text())
		if err != nil {
			_, err = fmt.Fprintf(out, "error %s\n", strings.Join(strings.Fields(err.Error()), " "))
		} else {
			_, err = fmt.Fprintf(out, "ok %d\n", took.Nanoseconds())
		}
		if err != nil {
			return fmt.Errorf("answer: %w", err)
		}
	}
	return errors.Join(lines.Err(), ctx.Err())
}

// open makes every peer that commands may name.
func open(label, value, network string) (map[string]peer, error) {
	dock, err := newDockertest(label, value)
	if err != nil {
		return nil, err
	}
	containers, err := newTestcontainer(label, value)
	if err != nil {
		return nil, err
	}
	return map[string]peer{
		"testcontainers": containers,
		"dockertest":     dock,
		"replaced":       commandLine{label: label + "=" + value, network: network, owner: value},
	}, nil
}

// obey does one command.
func obey(ctx context.Context, peers map[string]peer, line string) (time.Duration, error) {
	words := strings.Fields(line)
	if len(words) < 2 {
		return 0, fmt.Errorf("%q is not a peer and its engines", line)
	}
	p, ok := peers[words[0]]
	if !ok {
		return 0, fmt.Errorf("%q is no peer", words[0])
	}
	var set []order
	for _, w := range words[1:] {
		o, err := newOrder(w)
		if err != nil {
			return 0, err
		}
		set = append(set, o)
	}
	return measure(ctx, p, set)
}
