package events

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"runtime/debug"
)

//go:embed stumble.lua
var stumbleLua string

// stumbled keeps a handler's panic from ending the process. The entry is left to be delivered again; after as many panics
// as a request has attempts it is a dead letter, and a request is answered.
func (c *consumer) stumbled(d Delivery, cause any) {
	what, stack := panicWords(cause), debug.Stack()
	var carried interface{ Stack() []byte }
	if err, ok := cause.(error); ok && errors.As(err, &carried) {
		stack = carried.Stack()
	}
	log := c.bus.cfg.Log.With().Str("entry", d.Entry).Str("panic", what).Logger()
	log.Error().Bytes("stack", stack).Msg("a handler panicked")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.working), callLimit)
	defer cancel()
	times, kept, err := c.bus.stumble(ctx, d, what)
	switch {
	case err != nil:
		log.Error().Err(err).Msg("cannot count the panic; the entry is left to be delivered again")
	case kept:
		log.Error().Int("times", times).Msg("the entry is kept as a dead letter")
	case times > 0:
		log.Warn().Int("times", times).Int("most", c.bus.cfg.Attempts).Msg("the entry is left to be delivered again")
	}
}

// panicWords describes what was panicked with. It may hold a secret, so only a runtime error is told in its words.
func panicWords(cause any) string {
	var fault interface {
		error
		RuntimeError()
	}
	if err, ok := cause.(error); ok && errors.As(err, &fault) {
		return fault.Error()
	}
	var carried interface{ Cause() any }
	if err, ok := cause.(error); ok && errors.As(err, &carried) {
		cause = carried.Cause()
	}
	return fmt.Sprintf("a value of type %T", cause)
}

type stumbleArgs struct {
	handle
	Reason string `json:"reason"`
}

// stumble counts a panic over an entry, and keeps the entry as a dead letter when it was one too many. It gives how many
// there have been; none when the entry is another consumer's by now.
func (b *Bus) stumble(ctx context.Context, d Delivery, what string) (times int, kept bool, err error) {
	keys := append(b.keys(d.Event.Subject, d.rid, d.Event.ID), b.key("panics:"+d.Entry))
	n, err := b.number(ctx, "count a panic over entry "+d.Entry, b.scripts.stumble, keys, stumbleArgs{handle: d.handle(), Reason: what})
	if n < 0 {
		return -n, true, err
	}
	return n, false, err
}
