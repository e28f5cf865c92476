package events

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
)

//go:embed answer.lua
var answerLua string

//go:embed finish.lua
var finishLua string

type answerArgs struct {
	handle
	State   State             `json:"state"`
	Refusal string            `json:"refusal,omitempty"`
	Body    string            `json:"body,omitempty"`
	Task    string            `json:"task,omitempty"`
	Asked   []want            `json:"asked,omitempty"`
	Checked map[string]string `json:"checked,omitempty"`
	Guarded int               `json:"guarded"`
}

func (b *Bus) answer(ctx context.Context, d Delivery, args answerArgs) (Verdict, error) {
	args.handle = d.handle()
	v, err := b.word(ctx, "answer request "+d.rid, b.scripts.answer, b.keys(d.Event.Subject, d.rid, d.Event.ID), args)
	return Verdict(v), err
}

// Refuse answers with a refusal and finishes the entry. A request for a sandbox that is older than the watermark is
// answered as stale. It reports false when the entry is another consumer's by now.
func (b *Bus) Refuse(ctx context.Context, d Delivery, s State, r Refusal, task string) (bool, error) {
	raw, err := json.Marshal(r)
	if err != nil {
		return false, fmt.Errorf("write a refusal: %w", err)
	}
	args := answerArgs{State: s, Refusal: string(raw), Task: task}
	if d.Event.Type == SandboxRequested {
		args.Guarded = 1
	}
	v, err := b.answer(ctx, d, args)
	return v == Done, err
}

// AnswerHit answers from the record, whose containers (engine -> container ID) were checked just now, and finishes
// the entry. Done, Lost, or Again when record or watermark have moved on.
func (b *Bus) AnswerHit(ctx context.Context, d Delivery, asked []Want, checked map[string]string) (Verdict, error) {
	if len(asked) == 0 || len(checked) == 0 {
		return Again, nil // nothing was looked at
	}
	return b.answer(ctx, d, answerArgs{State: StateOK, Asked: wants(asked), Checked: checked})
}

// AnswerBody answers something other than a request for a sandbox, and finishes the entry.
func (b *Bus) AnswerBody(ctx context.Context, d Delivery, body json.RawMessage) (bool, error) {
	v, err := b.answer(ctx, d, answerArgs{State: StateOK, Body: string(body)})
	return v == Done, err
}

type finishArgs struct {
	handle
	Cause  Cause  `json:"cause,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Finish ends an entry that needs no reply. It reports false when the entry is another consumer's by now.
func (b *Bus) Finish(ctx context.Context, d Delivery) (bool, error) {
	n, err := b.number(ctx, "finish entry "+d.Entry, b.scripts.finish, b.keys(d.Event.Subject, d.rid, d.Event.ID), finishArgs{handle: d.handle()})
	return n == 1, err
}

// DeadLetter ends an entry and keeps it, with the reason, in the dead letters. A request that nobody has answered is
// answered as exhausted. Its cause is CauseRefused. It reports false when the entry is another consumer's by now.
func (b *Bus) DeadLetter(ctx context.Context, d Delivery, reason string) (bool, error) {
	return b.deadLetter(ctx, d, CauseRefused, reason)
}

func (b *Bus) deadLetter(ctx context.Context, d Delivery, cause Cause, reason string) (bool, error) {
	if reason == "" {
		reason = "no reason was given"
	}
	n, err := b.number(ctx, "keep entry "+d.Entry+" as a dead letter", b.scripts.finish, b.keys(d.Event.Subject, d.rid, d.Event.ID), finishArgs{handle: d.handle(), Cause: cause, Reason: reason})
	return n == 1, err
}
