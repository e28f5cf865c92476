package worker

import (
	"fmt"
	"runtime/debug"
	"sync"
)

// together runs functions side by side. A panic in one of them, which would end the process, is raised again in whoever
// waits: the bus knows what to do with a handler that panics, and the other requests of this worker go on.
type together struct {
	running sync.WaitGroup

	mu       sync.Mutex
	panicked *carried
}

// Go runs f beside the others.
func (t *together) Go(f func()) {
	t.running.Go(func() {
		defer func() {
			if cause := recover(); cause != nil {
				t.mu.Lock()
				defer t.mu.Unlock()
				if t.panicked == nil {
					t.panicked = &carried{cause: cause, stack: debug.Stack()}
				}
			}
		}()
		f()
	})
}

// Wait returns when all have ended, and panics where one of them did.
func (t *together) Wait() {
	t.running.Wait()
	if t.panicked != nil {
		panic(t.panicked)
	}
}

// carried is a panic on its way from one goroutine to another.
type carried struct {
	cause any
	stack []byte // of where it was raised
}

// Error tells the type alone: what was panicked with may hold a secret.
func (c *carried) Error() string { return fmt.Sprintf("panicked with a value of type %T", c.cause) }

// Unwrap gives the cause where it is an error.
func (c *carried) Unwrap() error {
	err, _ := c.cause.(error)
	return err
}

// Cause is what was panicked with.
func (c *carried) Cause() any { return c.cause }

// Stack is of where the panic was raised.
func (c *carried) Stack() []byte { return c.stack }

// contained keeps a panic of a background loop from ending the process: one agent's oddity must not stop all others.
func (w *Worker) contained(what string, f func()) {
	defer func() {
		if cause := recover(); cause != nil {
			c := &carried{cause: cause, stack: debug.Stack()}
			w.cfg.Log.Error().Str("panic", c.Error()).Bytes("stack", c.stack).Msg(what + " panicked")
		}
	}()
	f()
}
