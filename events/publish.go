package events

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed publish.lua
var publishLua string

// Published is what became of a publication.
type Published struct {
	// StreamID is the event's time; of the first publication when the event was known.
	StreamID string
	// Moot: an agent.stopped of an owner that is not the present one, or a work.ended of another task. Nothing was stored,
	// nothing is to be done.
	Moot  bool
	Known bool // this event ID was published before
	// Deadline of a request that was stored now: by then it must be accepted or queued, on Redis's clock.
	Deadline time.Time
}

type publishArgs struct {
	Slug    string   `json:"slug"`
	RID     string   `json:"rid"`
	Type    Type     `json:"type"`
	Task    string   `json:"task"`
	Project string   `json:"project"`
	Owner   string   `json:"owner"`
	Gateway string   `json:"gateway"`
	Fields  []string `json:"fields"`
}

// PublishStored publishes an event that was kept as CloudEvents JSON. One that cannot be read is logged and passed over: it would
// hold up for ever whatever comes after it.
func (b *Bus) PublishStored(ctx context.Context, id string, raw []byte) error {
	e, err := Decode(raw)
	if err != nil {
		b.cfg.Log.Error().Err(err).Str("event", id).Msg("an owed event cannot be read")
		return nil
	}
	_, err = b.Publish(ctx, e)
	return err
}

// Publish stores an event; it takes effect at once. Only sandbox.requested and logs.requested can be refused (a *FullError).
// An event that Decode would not have made is refused with its *DecodeError.
func (b *Bus) Publish(ctx context.Context, e Event) (Published, error) {
	body, err := e.check()
	if err != nil {
		return Published{}, err
	}
	if e.Time.IsZero() {
		e.Time = time.Now().UTC()
	}
	args := publishArgs{Slug: e.Subject, Type: e.Type, Fields: e.fields()}
	switch d := body.(type) {
	case Started:
		args.Task, args.Project, args.Owner = d.TaskID, d.Project, d.Owner
	case Ended:
		args.Task = d.TaskID
	case Stopped:
		args.Owner = d.Owner
	case Requested:
		args.RID, args.Gateway = d.RequestID, d.Gateway
	case LogsWanted:
		args.RID, args.Gateway = d.RequestID, d.Gateway
	}
	v, err := b.list(ctx, fmt.Sprintf("publish %s of %s", e.Type, e.Subject), 3, b.scripts.publish, b.keys(e.Subject, args.RID, e.ID), args)
	if err != nil {
		return Published{}, err
	}
	switch v[0] {
	case "FULL":
		full := &FullError{Limit: b.cfg.StreamCap}
		if v[1] == "agent" {
			full = &FullError{Agent: e.Subject, Limit: b.cfg.AgentCap}
		}
		return Published{}, fmt.Errorf("publish %s of %s: %w", e.Type, e.Subject, full)
	case "MOOT":
		return Published{Moot: true}, nil
	}
	p := Published{StreamID: v[1], Known: v[0] == "KNOWN"}
	if v[2] != "" {
		p.Deadline = millis(v[2])
	}
	return p, nil
}

// Known says how an event that was published before was answered then: its stream ID, or that it was moot; neither where
// Redis has forgotten it.
func (b *Bus) Known(ctx context.Context, eventID string) (Published, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	id, err := b.calls.Get(ctx, b.key("published:"+eventID)).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return Published{Known: true}, nil
	case err != nil:
		return Published{}, failed("look for event "+eventID, err)
	case id == "0-0":
		return Published{Moot: true}, nil
	}
	return Published{StreamID: id, Known: true}, nil
}

// FullError says which cap a request has met. It is ErrFull.
type FullError struct {
	Agent string // whose share is used up; empty for the work stream's own cap
	Limit int64
}

// Error names the limit.
func (e *FullError) Error() string {
	if e.Agent == "" {
		return fmt.Sprintf("%v: the work stream holds %d entries, as many as it may", ErrFull, e.Limit)
	}
	return fmt.Sprintf("%v: %d requests of agent %s have no answer yet, as many as one agent may have (ROBOCO_SANDBOX_AGENT_REQUESTS)", ErrFull, e.Limit, e.Agent)
}

// Unwrap is ErrFull.
func (*FullError) Unwrap() error { return ErrFull }

// fields is the event as it stands in a stream entry. v marks an entry that publish has written.
func (e Event) fields() []string {
	data := e.Data
	if data == nil {
		data = json.RawMessage("{}")
	}
	return []string{
		"v", "1",
		"specversion", "1.0",
		"id", e.ID,
		"type", string(e.Type),
		"source", e.Source,
		"subject", e.Subject,
		"time", e.Time.UTC().Format(time.RFC3339Nano),
		"traceparent", e.TraceParent,
		"data", string(data),
	}
}
