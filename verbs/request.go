package verbs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/events"
)

// requestSandbox answers POST /api/v1/do/request_sandbox.
func (g *Gateway) requestSandbox(w http.ResponseWriter, r *http.Request, c *call) error {
	raw, err := body(r)
	if err != nil {
		return err
	}
	in, err := client.ParseSandboxRequest(raw)
	if err != nil {
		return err
	}
	if wantsAsync(r) {
		return g.requestAsync(w, r, c, in)
	}
	mayLast(w)
	env, err := g.ask(r.Context(), c, in, func(client.Progress) {})
	if err != nil {
		return nil //nolint:nilerr // the caller has gone: what is under way goes on
	}
	writeJSON(w, http.StatusOK, env)
	return nil
}

// wantsAsync reads the Prefer header (RFC 7240).
func wantsAsync(r *http.Request) bool {
	for _, line := range r.Header.Values("Prefer") {
		for p := range strings.SplitSeq(line, ",") {
			name, _, _ := strings.Cut(p, ";")
			if strings.EqualFold(strings.TrimSpace(name), "respond-async") {
				return true
			}
		}
	}
	return false
}

// mayLast takes the server's deadlines off a call that waits for a provision.
func mayLast(w http.ResponseWriter) {
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Time{}) // a server without deadlines has nothing to take off
	_ = rc.SetWriteDeadline(time.Time{})
}

// requestAsync publishes the request and says where its replies are.
func (g *Gateway) requestAsync(w http.ResponseWriter, r *http.Request, c *call, in client.SandboxRequest) error {
	e, err := g.requestEvent(c, in)
	if err != nil {
		return err
	}
	g.pending.add(e)
	if refused := g.publishRequest(r.Context(), e); refused != nil {
		g.pending.remove(e.ID)
		g.metrics.request(refusedByGateway, 0)
		writeJSON(w, http.StatusOK, g.refusal(c, e.ID, "", *refused))
		return nil
	}
	g.metrics.request("async", 0)
	path := "/api/v1/requests/" + e.ID + "/events"
	w.Header().Set("Preference-Applied", "respond-async")
	w.Header().Set("Location", path)
	writeJSON(w, http.StatusAccepted, client.Accepted{
		RequestID: e.ID, ReplyStream: g.cfg.Bus.ReplyStream(c.who.slug, e.ID), Events: path,
	})
	return nil
}

// refusedByGateway is the outcome of a request that never reached a worker, as far as the gateway can tell.
const refusedByGateway = "unanswered"

// ask publishes a request and waits for its end: an envelope, refusals included. The only error is that the caller has
// stopped waiting, which cancels nothing.
func (g *Gateway) ask(ctx context.Context, c *call, in client.SandboxRequest, each func(client.Progress)) (client.Envelope, error) {
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, g.cfg.RequestLimit)
	defer cancel()
	e, err := g.requestEvent(c, in)
	if err != nil {
		return client.Envelope{}, err
	}
	forget := g.cfg.Bus.Expect(g.cfg.GatewayName, e.ID)
	defer forget()
	refused := g.publishRequest(limited, e)
	if ctx.Err() != nil {
		return client.Envelope{}, context.Cause(ctx)
	}
	if refused == nil {
		f := &follower{bus: g.cfg.Bus, accept: g.cfg.AcceptTimeout, slug: e.Subject, id: e.ID, event: &e, each: tellProgress(each)}
		reply, err := f.run(limited)
		switch {
		case err == nil:
			g.metrics.request(string(reply.State), time.Since(began))
			return g.replyEnvelope(c, e.ID, reply), nil
		case ctx.Err() != nil:
			g.metrics.request("abandoned", time.Since(began))
			return client.Envelope{}, context.Cause(ctx)
		}
		r := g.unanswered(err)
		refused = &r
	}
	g.metrics.request(refusedByGateway, time.Since(began))
	return g.refusal(c, e.ID, "", *refused), nil
}

// tellProgress hands progress entries on.
func tellProgress(each func(client.Progress)) func(events.Reply) error {
	return func(r events.Reply) error {
		if r.Progress != nil {
			each(wireProgress(r))
		}
		return nil
	}
}

func wireProgress(r events.Reply) client.Progress {
	p := r.Progress
	return client.Progress{ID: r.ID, Stage: string(p.Stage), Engine: p.Engine, Done: p.Done, Total: p.Total, Position: p.Position}
}

// unanswered is the refusal for a request whose end did not come.
func (g *Gateway) unanswered(err error) events.Refusal {
	switch {
	case errors.Is(err, errNotAccepted):
		return g.guard7(fmt.Sprintf("no worker took the request within %s", g.cfg.AcceptTimeout))
	case errors.Is(err, errForgotten):
		return events.Refusal{
			Message: words(err), Remediate: "Call request_sandbox() again.", Retryable: true, RetryAfterMS: 100,
		}
	case errors.Is(err, events.ErrFull):
		return g.guard7(words(err))
	case errors.Is(err, context.DeadlineExceeded):
		return events.Refusal{
			Message:   fmt.Sprintf("the sandbox is still being made after %s", g.cfg.RequestLimit),
			Remediate: "Call request_sandbox() again: it joins what is under way.", Retryable: true, RetryAfterMS: 1000,
		}
	default:
		return g.guard7Away(err)
	}
}

// requestEvent is the event of a request. Who asks comes from the token alone. Its ID is the request's: publishing it
// again is the same request.
func (g *Gateway) requestEvent(c *call, in client.SandboxRequest) (events.Event, error) {
	id := newID()
	data, err := json.Marshal(events.Requested{
		RequestID: id, Role: c.who.role, Services: in.Services, Extensions: in.Extensions, Gateway: g.cfg.GatewayName,
	})
	if err != nil {
		return events.Event{}, fmt.Errorf("write the request's event: %w", err)
	}
	return g.event(c, id, events.SandboxRequested, data), nil
}

// event is an event about the caller.
func (g *Gateway) event(c *call, id string, kind events.Type, data json.RawMessage) events.Event {
	return events.Event{
		SpecVersion: "1.0", ID: id, Type: kind, Source: "sandboxd/" + g.cfg.GatewayName, Subject: c.who.slug,
		Time: time.Now().UTC(), TraceParent: c.traceParent, Data: data,
	}
}

// publishRequest publishes until it is known to be stored, for as long as a worker would have had to accept it: an
// attempt without an answer may have been stored, and publishing is idempotent. It gives nil, or guard 7.
func (g *Gateway) publishRequest(ctx context.Context, e events.Event) *events.Refusal {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.AcceptTimeout)
	defer cancel()
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		_, err := g.cfg.Bus.Publish(ctx, e)
		if err == nil {
			return nil
		}
		if errors.Is(err, events.ErrFull) {
			r := g.guard7(words(err))
			return &r
		}
		if !wait(ctx, pause) {
			r := g.guard7Away(err)
			return &r
		}
	}
}

// pendingRequests are the asynchronous requests of this gateway: whose they are, and their events, in case Redis
// forgets them.
type pendingRequests struct {
	mu sync.Mutex
	m  map[string]events.Event
}

func newPendingRequests() *pendingRequests { return &pendingRequests{m: map[string]events.Event{}} }

func (p *pendingRequests) add(e events.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.m[e.ID] = e
}

func (p *pendingRequests) remove(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.m, id)
}

func (p *pendingRequests) get(id string) (events.Event, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, ok := p.m[id]
	return e, ok
}

// prune drops what was published before.
func (p *pendingRequests) prune(before time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, e := range p.m {
		if e.Time.Before(before) {
			delete(p.m, id)
		}
	}
}
