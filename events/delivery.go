package events

import (
	"crypto/rand"
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
)

// Delivery is one entry of the work stream in the hands of this consumer.
type Delivery struct {
	Entry string // stream entry ID: the event's time
	Event Event
	// Ends: the event ended a sandbox when it was published; containers may be left to remove.
	Ends bool
	// Foreign: it came by plain XADD and has had no effect yet: publish it anew under its own event ID, then Finish.
	Foreign  bool
	Deadline time.Time // of a request: by then it must be accepted or queued
	consumer string
	rid      string // of a request
	hand     string // of this delivery alone: an entry that is slow may be delivered again, to the same consumer too
	along    *along // what came with it; nil where it came alone
	leave    func() // gives the slot back, once; nil outside of Consume
}

// Leave gives the handler's slot back before the handler ends: another entry may be read. It may be called again.
func (d Delivery) Leave() {
	if d.leave != nil {
		d.leave()
	}
}

// deliver reads a stream entry. Publish marks what it writes with v; an entry without it is foreign, and may hold
// CloudEvents JSON in a field event, or the attributes as fields (data JSON), or CloudEvents JSON in data alone.
// Errors are *DecodeError.
func deliver(m redis.XMessage, consumer string) (Delivery, error) {
	d := Delivery{Entry: m.ID, consumer: consumer, hand: rand.Text()[:12], Foreign: text(m, "v") != "1", Ends: text(m, "ends") == "1", Deadline: millis(text(m, "deadline"))}
	var err error
	if d.Event, err = eventIn(m, d.Foreign); err != nil {
		return d, err
	}
	if d.Foreign {
		d.Ends, d.Deadline = false, time.Time{}
	}
	switch d.Event.Type {
	case SandboxRequested, LogsRequested:
		var body struct {
			RequestID string `json:"request_id"`
		}
		if err := json.Unmarshal(d.Event.Data, &body); err != nil {
			return d, decodeError("data", err)
		}
		d.rid = body.RequestID
	default: // nobody waits for a reply
	}
	return d, nil
}

// eventIn reads an entry's event. What publish has written is taken field by field, without a detour over JSON.
func eventIn(m redis.XMessage, foreign bool) (Event, error) {
	e, plain := ownEvent(m)
	if foreign || !plain {
		raw, err := eventOf(m)
		if err != nil {
			return Event{}, err
		}
		return Decode(raw)
	}
	if _, err := e.check(); err != nil {
		return Event{}, err
	}
	return e, nil
}

// ownEvent is an entry in the form that publish gives it; plain says that it is.
func ownEvent(m redis.XMessage) (e Event, plain bool) {
	data := text(m, "data")
	at, err := time.Parse(time.RFC3339Nano, text(m, "time"))
	e = Event{
		SpecVersion: text(m, "specversion"), ID: text(m, "id"), Type: Type(text(m, "type")), Source: text(m, "source"),
		Subject: text(m, "subject"), Time: at.UTC(), TraceParent: text(m, "traceparent"), Data: json.RawMessage(data),
	}
	for _, s := range []string{e.SpecVersion, e.ID, e.Source, e.TraceParent, data} {
		if !utf8.ValidString(s) {
			return e, false
		}
	}
	return e, err == nil && e.SpecVersion != "" && e.Type != "" && text(m, "event") == "" && json.Valid(e.Data)
}

// eventOf gives an entry's event as CloudEvents JSON.
func eventOf(m redis.XMessage) ([]byte, error) {
	if raw := text(m, "event"); raw != "" {
		return []byte(raw), nil
	}
	if text(m, "type") == "" {
		if raw := text(m, "data"); raw != "" {
			return []byte(raw), nil
		}
		return nil, &DecodeError{Attribute: "type", Problem: "is missing", Allowed: typeNames()}
	}
	out := map[string]any{}
	for _, name := range []string{"specversion", "id", "type", "source", "subject", "time", "traceparent"} {
		if v := text(m, name); v != "" {
			out[name] = v
		}
	}
	if data := text(m, "data"); data != "" {
		if !json.Valid([]byte(data)) {
			return nil, &DecodeError{Attribute: "data", Problem: "is not valid JSON"}
		}
		out["data"] = json.RawMessage(data)
	}
	raw, err := json.Marshal(out)
	if err != nil {
		return nil, &DecodeError{Attribute: "event", Problem: "cannot be written as JSON"}
	}
	return raw, nil
}

// text is a field of a stream entry, empty when it is not there.
func text(m redis.XMessage, name string) string {
	s, _ := m.Values[name].(string)
	return s
}
