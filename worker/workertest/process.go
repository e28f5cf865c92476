package workertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// errKilled: the process is no more. Whoever is told so must not be able to do anything about it.
var errKilled = errors.New("the process was killed")

// Process is one operating-system process in simulation: everything in it that reaches outside, to Redis, to the container
// engine, to servers and to the store, goes through one gate. Kill shuts the gate for ever, as SIGKILL would: what is under way
// may or may not have its effect, nothing after it has. Stop shuts it for a while, as SIGSTOP would.
type Process struct {
	Name string

	life context.Context //nolint:containedctx // a process is its life; it ends at the kill
	end  context.CancelFunc

	mu      sync.Mutex
	resumed chan struct{} // not nil while stopped; closed at the end of the stop
	until   time.Time
	conns   map[net.Conn]struct{}
	clients []redis.UniversalClient
	timers  sync.WaitGroup
}

// NewProcess makes a process that lives.
func NewProcess(name string) *Process {
	p := &Process{Name: name, conns: map[net.Conn]struct{}{}}
	p.life, p.end = context.WithCancel(context.Background())
	return p
}

// Kill ends the process: its connections break, and no call of it has an effect from now on.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end()
	for c := range p.conns {
		_ = c.Close()
	}
	clear(p.conns)
}

// Killed is closed when the process is dead.
func (p *Process) Killed() <-chan struct{} { return p.life.Done() }

// Stop makes every call wait for so long, also those whose answer is on its way. A longer stop under way goes on.
func (p *Process) Stop(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if until := time.Now().Add(d); until.After(p.until) {
		p.until = until
	}
	if p.resumed != nil {
		return
	}
	p.resumed = make(chan struct{})
	p.timers.Add(1)
	go p.resume()
}

// resume opens the gate again when the time has come.
func (p *Process) resume() {
	defer p.timers.Done()
	for {
		p.mu.Lock()
		left := time.Until(p.until)
		if left <= 0 {
			close(p.resumed)
			p.resumed = nil
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		t := time.NewTimer(left)
		select {
		case <-t.C:
		case <-p.life.Done():
			t.Stop()
			p.mu.Lock()
			p.until = time.Time{}
			p.mu.Unlock()
		}
	}
}

// pass returns nil once the process runs, and errKilled when it is dead. It heeds no context: a stopped process does not
// notice that its time is up.
func (p *Process) pass() error {
	for {
		p.mu.Lock()
		resumed := p.resumed
		p.mu.Unlock()
		if p.life.Err() != nil {
			return errKilled
		}
		if resumed == nil {
			return nil
		}
		select {
		case <-resumed:
		case <-p.life.Done():
			return errKilled
		}
	}
}

// through passes the gate, calls, and passes it again with the answer.
func through[T any](p *Process, down error, call func() (T, error)) (T, error) {
	var none T
	if err := p.pass(); err != nil {
		return none, gateError(down, err)
	}
	v, err := call()
	if gate := p.pass(); gate != nil {
		return none, gateError(down, gate)
	}
	return v, err
}

func gateError(down, cause error) error {
	if down == nil {
		return cause
	}
	return fmt.Errorf("%w: %w", down, cause)
}

// Attach makes a Redis client one of this process, to be closed by Close.
func (p *Process) Attach(c redis.UniversalClient) redis.UniversalClient {
	c.AddHook(gateHook{p})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clients = append(p.clients, c)
	return c
}

// Close gives back what the process held; it is for after its end.
func (p *Process) Close() {
	p.Kill()
	p.timers.Wait()
	p.mu.Lock()
	clients := p.clients
	p.clients = nil
	p.mu.Unlock()
	for _, c := range clients { // without the lock: each closes its connections, which takes it
		_ = c.Close()
	}
}

// gateHook puts the gate before and after every command, and remembers the connections.
type gateHook struct{ p *Process }

// DialHook remembers each connection, so that Kill can break it.
func (h gateHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if err := h.p.pass(); err != nil {
			return nil, err
		}
		c, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return h.p.adopt(c)
	}
}

// adopt keeps a connection, unless the process has died meanwhile.
func (p *Process) adopt(c net.Conn) (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life.Err() != nil {
		_ = c.Close()
		return nil, errKilled
	}
	p.conns[c] = struct{}{}
	return &gatedConn{Conn: c, p: p}, nil
}

// gatedConn leaves the process's list when it is closed.
type gatedConn struct {
	net.Conn
	p *Process
}

// Close closes the connection and forgets it.
func (c *gatedConn) Close() error {
	c.p.mu.Lock()
	delete(c.p.conns, c.Conn)
	c.p.mu.Unlock()
	return c.Conn.Close()
}

// ProcessHook gates one command.
func (h gateHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		_, err := through(h.p, nil, func() (struct{}, error) { return struct{}{}, next(ctx, cmd) })
		if errors.Is(err, errKilled) {
			cmd.SetErr(err)
		}
		return err
	}
}

// ProcessPipelineHook gates a pipeline.
func (h gateHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		_, err := through(h.p, nil, func() (struct{}, error) { return struct{}{}, next(ctx, cmds) })
		if errors.Is(err, errKilled) {
			for _, c := range cmds {
				c.SetErr(err)
			}
		}
		return err
	}
}
