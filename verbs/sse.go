package verbs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/events"
)

// requestEvents answers GET /api/v1/requests/{id}/events: the caller's own request, and no other's. A reply stream
// bears the name of its agent, so that another's cannot be reached at all.
func (g *Gateway) requestEvents(w http.ResponseWriter, r *http.Request, c *call) error {
	id, err := uuid.Parse(r.PathValue("id"))
	if err != nil {
		return noRequest()
	}
	f := &follower{bus: g.cfg.Bus, accept: g.cfg.AcceptTimeout, slug: c.who.slug, id: id.String()}
	e, known := g.pending.get(f.id)
	if known && e.Subject != f.slug {
		return noRequest()
	}
	if known {
		f.event = &e
	}
	replies, err := f.bus.Replies(r.Context(), f.slug, f.id, "")
	if errors.Is(err, events.ErrExpired) && !known {
		return noRequest()
	}
	if err != nil && !errors.Is(err, events.ErrExpired) {
		return fmt.Errorf("read the replies to request %s: %w", f.id, err)
	}
	s := newEventStream(w, g.cfg.KeepAlive)
	defer s.close()
	s.open()
	g.stream(r.Context(), c, f, s, replies, r.Header.Get("Last-Event-ID"))
	return nil
}

func noRequest() *problem {
	return notFound("that request", "Only the agent that asked may follow a request, and for an hour after its last reply; call request_sandbox() again.")
}

// stream sends what stands and then what comes, until the terminal reply was sent. Who has gone away cannot be told.
func (g *Gateway) stream(ctx context.Context, c *call, f *follower, s *eventStream, stood []events.Reply, after string) {
	f.each = func(r events.Reply) error { return s.send(r.ID, "progress", wireProgress(r)) }
	result := func(id string, env client.Envelope) { _ = s.send(id, "result", env) }
	for _, r := range stood {
		f.last, f.heard = r.ID, true
		if r.Terminal() {
			result(r.ID, g.replyEnvelope(c, f.id, r))
			return
		}
		if !seenBefore(r.ID, after) && f.each(r) != nil {
			return
		}
	}
	ctx, cancel := context.WithTimeout(ctx, g.cfg.RequestLimit)
	defer cancel()
	reply, err := f.run(ctx)
	switch {
	case err == nil:
		result(reply.ID, g.replyEnvelope(c, f.id, reply))
	case ctx.Err() != nil || f.told != nil: // gone, or long enough: who is still there connects again
	default:
		result("", g.refusal(c, f.id, "", g.unanswered(err)))
	}
}

// eventStream writes server-sent events, and comments while there are none.
type eventStream struct {
	w    http.ResponseWriter
	rc   *http.ResponseController
	keep time.Duration

	mu   sync.Mutex
	done chan struct{}
	gone sync.WaitGroup
}

func newEventStream(w http.ResponseWriter, keep time.Duration) *eventStream {
	return &eventStream{w: w, rc: http.NewResponseController(w), keep: keep, done: make(chan struct{})}
}

// open sends the head and begins to keep the connection alive.
func (s *eventStream) open() {
	mayLast(s.w)
	s.w.Header().Set("Content-Type", "text/event-stream")
	s.w.Header().Set("X-Accel-Buffering", "no")
	s.w.WriteHeader(http.StatusOK)
	_ = s.write([]byte(": open\n\n")) // the next write tells
	s.gone.Go(s.keepAlive)
}

// keepAlive writes a comment at each tick.
func (s *eventStream) keepAlive() {
	tick := time.NewTicker(s.keep)
	defer tick.Stop()
	for {
		select {
		case <-s.done:
			return
		case <-tick.C:
			s.mu.Lock()
			_ = s.write([]byte(": keep-alive\n\n"))
			s.mu.Unlock()
		}
	}
}

// send writes one event.
func (s *eventStream) send(id, name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write event %s: %w", name, err)
	}
	var b []byte
	if id != "" {
		b = fmt.Appendf(b, "id: %s\n", id)
	}
	b = fmt.Appendf(b, "event: %s\ndata: %s\n\n", name, data)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.write(b)
}

func (s *eventStream) write(b []byte) error {
	if _, err := s.w.Write(b); err != nil {
		return fmt.Errorf("write to the event stream: %w", err)
	}
	if err := s.rc.Flush(); err != nil {
		return fmt.Errorf("flush the event stream: %w", err)
	}
	return nil
}

// close ends the keep-alive; nothing is written after it.
func (s *eventStream) close() {
	close(s.done)
	s.gone.Wait()
}

// streamID is a Redis stream entry's ID.
var streamID = regexp.MustCompile(`^(\d{1,20})-(\d{1,20})$`)

// seenBefore says that the entry is not younger than the last one the client has; an ID that is none counts as nothing seen.
func seenBefore(id, last string) bool {
	a, b := streamID.FindStringSubmatch(id), streamID.FindStringSubmatch(last)
	if a == nil || b == nil {
		return false
	}
	for i := 1; i <= 2; i++ {
		if len(a[i]) != len(b[i]) {
			return len(a[i]) < len(b[i])
		}
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return true
}
