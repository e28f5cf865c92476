package events

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
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
	Seen    *seen             `json:"seen,omitempty"`
	Guarded int               `json:"guarded"`
}

// seen is what the guards saw, in a script's arguments.
type seen struct {
	Task     string `json:"task"`
	Project  string `json:"project"`
	Owner    string `json:"owner"`
	At       string `json:"at"`       // µs, for the audit
	Deadline int64  `json:"deadline"` // ms, 0 for none
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

// Glance is a hit that was seen before anything was begun.
type Glance struct {
	Asked   []Want
	Seen    Tenancy           // the tenancy that the guards saw alive
	At      time.Time         // when Standing read the record, whose containers were looked at since then
	Checked map[string]string // engine -> container ID, found alive
}

// AnswerGlance is AnswerHit without a Begin before it, and in its place where nothing is to be decided: all is as the guards
// saw it, nobody has answered, and no limit has passed. Done, Lost, or Again: then the request is to be begun.
func (b *Bus) AnswerGlance(ctx context.Context, d Delivery, g Glance) (Verdict, error) {
	if len(g.Asked) == 0 || len(g.Checked) == 0 {
		return Again, nil // nothing was looked at
	}
	s := &seen{Task: g.Seen.Task, Project: g.Seen.Project, Owner: g.Seen.Owner, At: strconv.FormatInt(g.At.UnixMicro(), 10)}
	if !d.Deadline.IsZero() {
		s.Deadline = d.Deadline.UnixMilli()
	}
	return b.answer(ctx, d, answerArgs{State: StateOK, Asked: wants(g.Asked), Checked: g.Checked, Seen: s})
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
