package events

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
)

// What the holder of a lease does: beat, tell, record, settle, or give up.

//go:embed beat.lua
var beatLua string

//go:embed tell.lua
var tellLua string

//go:embed record.lua
var recordLua string

//go:embed settle.lua
var settleLua string

//go:embed giveup.lua
var giveupLua string

// Fencing is what a lease holder is told.
type Fencing string

// The answers to Beat, Record, Settle and GiveUp.
const (
	Held    Fencing = "OK"
	Fenced  Fencing = "FENCED"  // another epoch holds the lease, or none: go back to the guards
	Revoked Fencing = "REVOKED" // the container may not be recorded any more: make another
	Lapsed  Fencing = "AGAIN"   // the record lapsed under the run: go back to the guards
)

type leaseArgs struct {
	handle
	Epoch   string `json:"epoch"`
	Engine  string `json:"engine,omitempty"`
	By      string `json:"by,omitempty"`
	Refusal string `json:"refusal,omitempty"`
	Asked   []want `json:"asked"`
}

// Beat extends the lease and keeps the entry ours. Held or Fenced.
func (b *Bus) Beat(ctx context.Context, d Delivery, epoch string) (Fencing, error) {
	v, err := b.word(ctx, "extend the lease on "+d.Event.Subject, b.scripts.beat, b.keys(d.Event.Subject, d.rid, d.Event.ID),
		leaseArgs{handle: d.handle(), Epoch: epoch})
	return Fencing(v), err
}

// Tell adds a progress entry, under the lease only, and none after a terminal reply; it never fails a run.
func (b *Bus) Tell(ctx context.Context, d Delivery, epoch string, p Progress) error {
	line, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("write progress: %w", err)
	}
	_, err = b.number(ctx, "tell the progress of request "+d.rid, b.scripts.tell, b.keys(d.Event.Subject, d.rid, d.Event.ID),
		leaseArgs{handle: d.handle(), Epoch: epoch}, line)
	return err
}

// Record records one engine under the lease; with the last one asked for it writes the terminal reply too.
// Held, Fenced or Revoked.
func (b *Bus) Record(ctx context.Context, d Delivery, epoch, engine string, e Entry, o Outcome, reason string, asked []Want) (Fencing, error) {
	raw, err := b.seal(d.Event.Subject, engine, e)
	if err != nil {
		return "", err
	}
	by, err := json.Marshal(made{Outcome: o, Reason: reason})
	if err != nil {
		return "", fmt.Errorf("write an outcome: %w", err)
	}
	v, err := b.word(ctx, "record "+engine+" of "+d.Event.Subject, b.scripts.record, b.keys(d.Event.Subject, d.rid, d.Event.ID),
		leaseArgs{handle: d.handle(), Epoch: epoch, Engine: engine, By: string(by), Asked: wants(asked)}, raw)
	return Fencing(v), err
}

// Settle ends a run: the lease is released, the entry finished. failure is nil when nothing that was asked for failed.
// Held (done), Fenced or Lapsed.
func (b *Bus) Settle(ctx context.Context, d Delivery, epoch string, failure *Refusal, asked []Want) (Fencing, error) {
	args := leaseArgs{handle: d.handle(), Epoch: epoch, Asked: wants(asked)}
	if failure != nil {
		raw, err := json.Marshal(failure)
		if err != nil {
			return "", fmt.Errorf("write a failure: %w", err)
		}
		args.Refusal = string(raw)
	}
	v, err := b.word(ctx, "settle request "+d.rid, b.scripts.settle, b.keys(d.Event.Subject, d.rid, d.Event.ID), args)
	return Fencing(v), err
}

// GiveUp gives the entry of a run that has made nothing back to the stream, where any worker may take it at once. The lease is
// released; the run does not count as an attempt. Held or Fenced.
func (b *Bus) GiveUp(ctx context.Context, d Delivery, epoch string) (Fencing, error) {
	v, err := b.word(ctx, "give request "+d.rid+" back", b.scripts.giveup, b.keys(d.Event.Subject, d.rid, d.Event.ID),
		leaseArgs{handle: d.handle(), Epoch: epoch})
	return Fencing(v), err
}

// made says how a reply came by an engine.
type made struct {
	Outcome Outcome `json:"outcome"`
	Reason  string  `json:"reason"`
}

// marshal writes an entry as the scripts read it: features are a list, be it an empty one.
func (e Entry) marshal() ([]byte, error) {
	e.Features = full(e.Features)
	raw, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("write an entry of the record: %w", err)
	}
	return raw, nil
}
