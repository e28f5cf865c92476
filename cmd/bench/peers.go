package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/roboco/sandboxd/engines"
)

// peerProgram is bench/peers as it runs: it does one command at a time.
type peerProgram struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// startPeers starts it. At an interrupt it gets the same signal, removes what it made and ends.
func (b *bench) startPeers(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, b.peers, "-label", peerLabel+"="+b.id, "-network", b.network) //nolint:gosec // the program that was named
	cmd.Stderr, cmd.WaitDelay = os.Stderr, time.Minute
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	in, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("peers: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("peers: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("peers (`make bench` builds them; -peers= leaves them out): %w", err)
	}
	b.peer = &peerProgram{cmd: cmd, in: in, out: bufio.NewReader(out)}
	b.closers = append(b.closers, func() error {
		_ = in.Close()
		_ = cmd.Wait() // its answers have said what failed
		return nil
	})
	return nil
}

// image is what sandboxd makes this engine of the set of.
func image(s set, engine string) (string, error) {
	for _, e := range engines.Builtin() {
		if e.Name == engine {
			return e.Image(s.features[engine]), nil
		}
	}
	return "", fmt.Errorf("no engine is named %s", engine)
}

// measure lets a peer start a set, and gives how long it took; what it started is gone again then.
func (p *peerProgram) measure(ctx context.Context, peer string, s set) (time.Duration, error) {
	words := []string{peer}
	for _, engine := range s.engines {
		of, err := image(s, engine)
		if err != nil {
			return 0, err
		}
		words = append(words, engine+"="+of)
	}
	if _, err := fmt.Fprintln(p.in, strings.Join(words, " ")); err != nil {
		return 0, errors.Join(fmt.Errorf("tell the peers: %w", err), ctx.Err())
	}
	line, err := p.out.ReadString('\n')
	if err != nil {
		return 0, errors.Join(fmt.Errorf("hear from the peers: %w", err), ctx.Err())
	}
	verdict, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	if verdict != "ok" {
		return 0, fmt.Errorf("%s: %s", peer, rest)
	}
	took, err := strconv.ParseInt(rest, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the peers' answer: %w", err)
	}
	return time.Duration(took), nil
}
