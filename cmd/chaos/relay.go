package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// relay stands between the workers and the container engine's socket. It can hold everything back, delay it, refuse it and cut it.
type relay struct {
	socket, upstream string
	listener         net.Listener
	wg               sync.WaitGroup

	mu      sync.Mutex
	held    chan struct{} // not nil: nothing passes until it is closed
	delay   time.Duration // before each piece that passes
	refuses bool
	conns   map[net.Conn]struct{}
	closed  bool
}

func newRelay(ctx context.Context, socket, upstream string) (*relay, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("listen in the engine's place: %w", err)
	}
	r := &relay{socket: socket, upstream: upstream, listener: l, conns: map[net.Conn]struct{}{}}
	ctx = context.WithoutCancel(ctx)
	r.wg.Go(func() { r.accept(ctx) })
	return r, nil
}

func (r *relay) accept(ctx context.Context) {
	for {
		in, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.wg.Go(func() { r.serve(ctx, in) })
	}
}

// serve joins one connection to one of the engine's own.
func (r *relay) serve(ctx context.Context, in net.Conn) {
	defer in.Close()
	out, err := (&net.Dialer{}).DialContext(ctx, "unix", r.upstream)
	if err != nil {
		return
	}
	defer out.Close()
	if !r.admit(in, out) {
		return
	}
	defer r.dismiss(in, out)
	var both sync.WaitGroup
	both.Go(func() { r.pass(out, in) })
	both.Go(func() { r.pass(in, out) })
	both.Wait()
}

func (r *relay) admit(conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuses || r.closed {
		return false
	}
	for _, c := range conns {
		r.conns[c] = struct{}{}
	}
	return true
}

func (r *relay) dismiss(conns ...net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		delete(r.conns, c)
	}
}

// pass copies one direction until its end, and hands the end on.
func (r *relay) pass(to, from net.Conn) {
	piece := make([]byte, 32<<10)
	for {
		n, err := from.Read(piece)
		r.wait()
		if n > 0 {
			if _, err := to.Write(piece[:n]); err != nil {
				break
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				_ = to.Close()
			}
			break
		}
	}
	if half, ok := to.(*net.UnixConn); ok {
		_ = half.CloseWrite()
	}
}

// wait is what a piece has to bear on its way.
func (r *relay) wait() {
	r.mu.Lock()
	held, delay := r.held, r.delay
	r.mu.Unlock()
	if held != nil {
		<-held
	}
	time.Sleep(delay)
}

// hold lets nothing pass; release ends it. Nil when it is held already.
func (r *relay) hold() (release func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held != nil || r.closed {
		return nil
	}
	held := make(chan struct{})
	r.held = held
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.held == held {
			r.held = nil
			close(held)
		}
	}
}

func (r *relay) setDelay(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay = d
}

// setRefuses cuts what there is and refuses what comes.
func (r *relay) setRefuses(on bool) {
	r.mu.Lock()
	r.refuses = on
	r.mu.Unlock()
	if on {
		r.cut()
	}
}

// cut breaks every connection: whoever waits for an answer does not learn what became of its call.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		_ = c.Close()
	}
}

// calm ends every fault.
func (r *relay) calm() {
	r.setDelay(0)
	r.setRefuses(false)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held != nil {
		close(r.held)
		r.held = nil
	}
}

func (r *relay) close() {
	_ = r.listener.Close()
	r.calm()
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cut()
	r.wg.Wait()
}
