package verbs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/roboco/sandboxd/client"
)

// call is one HTTP call: who calls, and under which names it is traced.
type call struct {
	name          string // of the route, or the verb
	route         string // its name, for the metrics
	verb          string // a work-ending verb, for the metrics
	who           principal
	requestID     string // UUIDv7
	correlationID string
	traceParent   string // W3C
	outcome       string // for the metrics: "ok", or the code of the error
}

// handler answers one call. An error it returns is answered with its envelope, unless something was written already.
type handler func(w http.ResponseWriter, r *http.Request, c *call) error

// serve wraps a route: names, authentication, role, rate, panics, metrics.
func (g *Gateway) serve(rt route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		ctx, c, span := g.begin(r, rt)
		defer span.End()
		w.Header().Set("X-Request-Id", c.requestID)
		w.Header().Set("X-Correlation-Id", c.correlationID)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		out := &answer{ResponseWriter: w}
		defer func() {
			if cause := recover(); cause != nil {
				g.cfg.Log.Error().Str("correlation_id", c.correlationID).Str("call", c.name).
					Str("panic", panicWords(cause)).Bytes("stack", debug.Stack()).Msg("a call panicked")
				if out.status == 0 {
					g.fail(out, c, fmt.Errorf("%s panicked", c.name))
				}
			}
			g.metrics.observe(c, r.Method, out.status, time.Since(began))
		}()
		r = r.WithContext(ctx)
		whole := r.Body
		r.Body = http.MaxBytesReader(out, whole, g.cfg.MaxBody)
		if err := g.admit(r, rt, c); err != nil {
			drain(out, whole)
			g.fail(out, c, err)
			return
		}
		if err := rt.handle(out, r, c); err != nil && out.status == 0 {
			drain(out, whole)
			g.fail(out, c, err)
		}
	})
}

// panicWords describes what was panicked with. It may hold a secret, so only a runtime error is told in its words.
func panicWords(cause any) string {
	if fault, ok := cause.(runtime.Error); ok {
		return fault.Error()
	}
	return fmt.Sprintf("a value of type %T", cause)
}

// drain reads what is left of the body of a refused call, within limits: a connection that is closed over unread bytes
// is reset, and the answer lost with it.
func drain(w http.ResponseWriter, body io.Reader) {
	const most, patience = 256 << 10, 2 * time.Second
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(patience))
	_, _ = io.CopyN(io.Discard, body, most)
}

// begin gives the call its names: what the caller sent, where it is well-formed, else new ones.
func (g *Gateway) begin(r *http.Request, rt route) (context.Context, *call, trace.Span) {
	c := &call{name: rt.name, route: rt.name, requestID: newID(), outcome: "ok"}
	w3c := propagation.TraceContext{}
	ctx := w3c.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	if !trace.SpanContextFromContext(ctx).IsValid() {
		ctx = trace.ContextWithSpanContext(ctx, newSpanContext())
	}
	ctx, span := g.tracer.Start(ctx, rt.name, trace.WithSpanKind(trace.SpanKindServer))
	carrier := propagation.MapCarrier{}
	w3c.Inject(ctx, carrier)
	c.traceParent = carrier.Get("traceparent")
	c.correlationID = r.Header.Get("X-Correlation-Id")
	if !plainID(c.correlationID) {
		c.correlationID = trace.SpanContextFromContext(ctx).TraceID().String()
	}
	return ctx, c, span
}

// admit says whether the caller may make this call now.
func (g *Gateway) admit(r *http.Request, rt route, c *call) error {
	if rt.open {
		return nil
	}
	var err error
	if c.who, err = g.authenticate(r); err != nil {
		return err
	}
	if err := rt.allows(c.who); err != nil {
		return err
	}
	if rt.unlimited {
		return nil
	}
	return g.limits.take(c.who)
}

// body reads the whole body, whatever its content type says. It is bounded by MaxBody.
func body(r *http.Request) ([]byte, error) {
	b, err := io.ReadAll(r.Body)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, &client.InputError{Problem: "the body did not arrive in time"}
	}
	if err != nil {
		return nil, fmt.Errorf("read the body: %w", err)
	}
	return b, nil
}

// fields reads the body as an object with these members.
func fields(r *http.Request, allowed ...string) (client.Fields, error) {
	b, err := body(r)
	if err != nil {
		return nil, err
	}
	return client.ParseFields(b, allowed...)
}

// newID is a UUIDv7: it sorts by time.
func newID() string { return uuid.Must(uuid.NewV7()).String() }

// newSpanContext begins a trace that nobody samples: its ID still ties what belongs together.
func newSpanContext() trace.SpanContext {
	id := uuid.New()
	span := uuid.New()
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID(id), SpanID: trace.SpanID(span[:8]), Remote: true,
	})
}

// plainID says whether a caller's ID can be taken as it stands, into logs too.
func plainID(s string) bool {
	return s != "" && len(s) <= 128 && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// answer remembers the status that was written.
type answer struct {
	http.ResponseWriter

	status int
}

// WriteHeader notes the status.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write notes that something was written.
func (a *answer) Write(b []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	return a.ResponseWriter.Write(b) //nolint:wrapcheck // an io.Writer gives its own errors
}

// Flush sends what is written, for handlers that look for http.Flusher.
func (a *answer) Flush() {
	if f, ok := a.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
