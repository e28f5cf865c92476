package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"
)

// Shapes of names that become parts of keys, as expressions say them. Every event is held to them more than once on its way, so
// they are not matched as expressions.
const (
	slugShape    = `^[a-z0-9][a-z0-9-]{0,39}$`
	requestShape = `^[A-Za-z0-9._:-]{1,128}$`
	gatewayShape = `^[A-Za-z0-9._:-]{0,128}$`
)

func isSlug(s string) bool {
	return s != "" && len(s) <= 40 && s[0] != '-' && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
	})
}

func isRequestID(s string) bool { return s != "" && isGateway(s) }

func isGateway(s string) bool {
	return len(s) <= 128 && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '_' && r != ':' && r != '-'
	})
}

// Decode reads an event from CloudEvents JSON: specversion and time may be absent, other top-level attributes are
// ignored, type is judged before data, and data is checked against its type. Errors are *DecodeError.
func Decode(raw []byte) (Event, error) {
	var in struct {
		SpecVersion string          `json:"specversion"`
		ID          string          `json:"id"`
		Type        Type            `json:"type"`
		Source      string          `json:"source"`
		Subject     string          `json:"subject"`
		Time        string          `json:"time"`
		TraceParent string          `json:"traceparent"`
		Data        json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return Event{}, decodeError("event", err)
	}
	e := Event{SpecVersion: in.SpecVersion, ID: in.ID, Type: in.Type, Source: in.Source, Subject: in.Subject, TraceParent: in.TraceParent, Data: in.Data}
	if e.SpecVersion == "" {
		e.SpecVersion = "1.0"
	}
	if in.Time != "" {
		t, err := time.Parse(time.RFC3339Nano, in.Time)
		if err != nil {
			return Event{}, &DecodeError{Attribute: "time", Problem: "is not an RFC 3339 time"}
		}
		e.Time = t.UTC()
	}
	if _, err := e.check(); err != nil {
		return Event{}, err
	}
	return e, nil
}

// check judges an event and returns its data: Started, Ended, Requested, Stopped or LogsWanted.
func (e Event) check() (any, error) {
	switch e.Type {
	case WorkStarted, WorkEnded, SandboxRequested, AgentStopped, LogsRequested:
	case "":
		return nil, &DecodeError{Attribute: "type", Problem: "is missing", Allowed: typeNames()}
	default:
		return nil, &DecodeError{Attribute: "type", Problem: "is unknown: " + shorten(string(e.Type)), Allowed: typeNames()}
	}
	switch {
	case e.SpecVersion != "" && e.SpecVersion != "1.0":
		return nil, &DecodeError{Attribute: "specversion", Problem: "is " + shorten(e.SpecVersion), Allowed: []string{"1.0"}}
	case e.ID == "" || len(e.ID) > 256:
		return nil, &DecodeError{Attribute: "id", Problem: "must have 1 to 256 bytes"}
	case len(e.Source) > 1024:
		return nil, &DecodeError{Attribute: "source", Problem: "must have at most 1024 bytes"}
	case len(e.TraceParent) > 256:
		return nil, &DecodeError{Attribute: "traceparent", Problem: "must have at most 256 bytes"}
	case !isSlug(e.Subject):
		return nil, &DecodeError{Attribute: "subject", Problem: "must be an agent's slug, " + slugShape}
	}
	return e.checkData()
}

func (e Event) checkData() (any, error) {
	switch e.Type {
	case WorkStarted:
		d, err := readData[Started](e.Data)
		if err == nil {
			err = d.check()
		}
		return d, err
	case WorkEnded:
		return readData[Ended](e.Data)
	case AgentStopped:
		return readData[Stopped](e.Data)
	case LogsRequested:
		d, err := readData[LogsWanted](e.Data)
		if err == nil {
			err = checkRequest(d.RequestID, d.Gateway)
		}
		return d, err
	default:
		d, err := readData[Requested](e.Data)
		if err == nil {
			err = checkRequest(d.RequestID, d.Gateway)
		}
		if err == nil && d.Services != nil && len(d.Services) == 0 {
			err = &DecodeError{Attribute: "data.services", Problem: "must not be empty; null asks for all"}
		}
		return d, err
	}
}

func (s Started) check() error {
	switch {
	case s.TaskID == "":
		return &DecodeError{Attribute: "data.task_id", Problem: "is missing"}
	case s.Project == "":
		return &DecodeError{Attribute: "data.project", Problem: "is missing"}
	case s.Owner != "" && s.Owner != "container" && s.Owner != OwnerLease:
		return &DecodeError{Attribute: "data.owner", Problem: "is " + shorten(s.Owner), Allowed: []string{"container", OwnerLease}}
	}
	return nil
}

func checkRequest(id, gateway string) error {
	switch {
	case !isRequestID(id):
		return &DecodeError{Attribute: "data.request_id", Problem: "must match " + requestShape}
	case !isGateway(gateway):
		return &DecodeError{Attribute: "data.gateway", Problem: "must match " + gatewayShape}
	}
	return nil
}

// readData reads an object; no data at all is an empty one.
func readData[T any](raw json.RawMessage) (T, error) {
	var d T
	trimmed := bytes.TrimSpace(raw)
	if len(trimmed) == 0 || bytes.Equal(trimmed, []byte("null")) {
		return d, nil
	}
	if trimmed[0] != '{' {
		return d, &DecodeError{Attribute: "data", Problem: "must be an object"}
	}
	if err := json.Unmarshal(trimmed, &d); err != nil {
		return d, decodeError("data", err)
	}
	return d, nil
}

// decodeError names the attribute that a JSON error is about; it repeats nothing of the input.
func decodeError(within string, err error) error {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		at := within
		if wrong.Field != "" {
			at = wrong.Field
			if within != "event" {
				at = within + "." + wrong.Field
			}
		}
		return &DecodeError{Attribute: at, Problem: "must not be a JSON " + wrong.Value}
	}
	return &DecodeError{Attribute: within, Problem: "is not valid JSON"}
}

func typeNames() []string {
	return []string{string(AgentStopped), string(LogsRequested), string(SandboxRequested), string(WorkEnded), string(WorkStarted)}
}

// shorten keeps an input that is named in an error from filling it.
func shorten(s string) string {
	if len(s) > 64 {
		s = s[:64] + "..."
	}
	return strconv.Quote(s)
}

// millis reads a time in milliseconds since 1970, as the scripts write it; the zero time when it is none.
func millis(s string) time.Time {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(n)
}
