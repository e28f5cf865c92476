package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
)

// RequestLimit is how long a request for a sandbox may take, all in all.
const RequestLimit = 1080 * time.Second

// reconnects is how many times in a row the event stream may break without a word before the plain form is used.
const reconnects = 5

// errNoStream: the events of a request cannot be had this way; the plain form may work.
var errNoStream = errors.New("no event stream")

// RequestSandbox asks for the caller's sandbox and waits for it. each (nil for none) is told of every step. A refusal
// is an *Error. Giving up (ctx) cancels nothing: the next call gets what this one asked for.
//
// It asks for the asynchronous form and follows the request's events, across broken connections; where that is not to be
// had it falls back to the plain call, which waits in one go and joins what is under way.
func (c *Client) RequestSandbox(ctx context.Context, r SandboxRequest, each func(Progress)) (*Envelope, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestLimit)
	defer cancel()
	env, accepted, err := c.ask(ctx, r, true)
	if err != nil {
		return nil, err
	}
	if env == nil {
		env, err = c.Follow(ctx, accepted.RequestID, each)
		if errors.Is(err, errNoStream) || IsStatus(err, http.StatusNotFound) {
			env, _, err = c.ask(ctx, r, false)
		}
		if err != nil {
			return nil, err
		}
	}
	if env.Failed() {
		env.Evidence = nil
		return nil, &Error{HTTPStatus: http.StatusOK, Envelope: *env}
	}
	return env, nil
}

// ask posts the request. A gateway, or what stands before it, is free to ignore the wish for the asynchronous form:
// then the envelope is there at once.
func (c *Client) ask(ctx context.Context, r SandboxRequest, async bool) (*Envelope, *Accepted, error) {
	header := http.Header{}
	if async {
		header.Set("Prefer", "respond-async")
	}
	const path = "/api/v1/do/request_sandbox"
	resp, err := c.send(ctx, http.MethodPost, path, r.body(), header)
	if err != nil {
		return nil, nil, err
	}
	defer closeBody(resp)
	if resp.StatusCode == http.StatusAccepted {
		var a Accepted
		if err := decode(resp, "POST "+path, &a); err != nil {
			return nil, nil, err
		}
		if a.RequestID == "" {
			return nil, nil, fmt.Errorf("read the answer to POST %s: it names no request", path)
		}
		return nil, &a, nil
	}
	var env Envelope
	if err := decode(resp, "POST "+path, &env); err != nil {
		return nil, nil, err
	}
	return &env, nil, nil
}

// body keeps an empty list apart from an absent one: the gateway refuses the former, and says so.
func (r SandboxRequest) body() map[string]any {
	m := map[string]any{}
	if r.Services != nil {
		m["services"] = r.Services
	}
	if r.Extensions != nil {
		m["extensions"] = r.Extensions
	}
	return m
}

// Follow waits for a request's result, telling each of every step; a broken connection is taken up where it broke.
// Only the requester may follow a request. The envelope may be a refusal.
func (c *Client) Follow(ctx context.Context, requestID string, each func(Progress)) (*Envelope, error) {
	last, broken := "", 0
	for {
		env, seen, err := c.followOnce(ctx, requestID, last, each)
		if env != nil || isFinal(err) {
			return env, err
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("wait for request %s: %w", requestID, context.Cause(ctx))
		}
		broken++
		if seen != last {
			last, broken = seen, 0
		}
		if broken > reconnects {
			return nil, errNoStream
		}
		if err := pause(ctx, time.Duration(broken)*200*time.Millisecond); err != nil {
			return nil, fmt.Errorf("wait for request %s: %w", requestID, err)
		}
	}
}

// isFinal says that connecting again is of no use: the gateway refused, and not for the moment only.
func isFinal(err error) bool {
	if errors.Is(err, errNoStream) {
		return true
	}
	var e *Error
	return errors.As(err, &e) && !e.Envelope.Retryable && e.HTTPStatus < http.StatusInternalServerError
}

// pause waits, or gives ctx's error.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// followOnce reads one connection's events. It gives the result when it came, and the last event ID seen.
func (c *Client) followOnce(ctx context.Context, requestID, last string, each func(Progress)) (*Envelope, string, error) {
	header := http.Header{"Accept": {"text/event-stream"}}
	if last != "" {
		header.Set("Last-Event-ID", last)
	}
	path := "/api/v1/requests/" + requestID + "/events"
	resp, err := c.send(ctx, http.MethodGet, path, nil, header)
	if err != nil {
		return nil, last, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, answerLimit))
		return nil, last, asError(resp.StatusCode, b)
	}
	if t, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); t != "text/event-stream" {
		return nil, last, errNoStream
	}
	var env *Envelope
	err = readEvents(resp.Body, func(e serverEvent) error {
		if e.id != "" {
			last = e.id
		}
		switch e.name {
		case "progress":
			return tellProgress(e, each)
		case "result":
			env = &Envelope{}
			if err := json.Unmarshal(e.data, env); err != nil {
				return fmt.Errorf("read the result of request %s: %w", requestID, err)
			}
			return io.EOF
		default: // an event of a later version
			return nil
		}
	})
	return env, last, err
}

// tellProgress hands one progress event on.
func tellProgress(e serverEvent, each func(Progress)) error {
	if each == nil {
		return nil
	}
	p := Progress{ID: e.id}
	if err := json.Unmarshal(bytes.TrimSpace(e.data), &p); err != nil {
		return fmt.Errorf("read a progress event: %w", err)
	}
	if p.Stage = strings.TrimSpace(p.Stage); p.Stage != "" {
		each(p)
	}
	return nil
}
