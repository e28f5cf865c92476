package verbs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/rs/zerolog"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/state"
)

// problem is a call that is answered with an error: HTTP status, code and words. Its text holds no secret.
type problem struct {
	status     int
	code       string
	message    string
	remediate  string
	retryAfter time.Duration // more than 0: trying again may help
	taskID     string
}

// Error is the message.
func (p *problem) Error() string { return p.message }

// notFound says what there is not, and where to look for what there is.
func notFound(what, remediate string) *problem {
	return &problem{status: http.StatusNotFound, code: client.CodeNotFound, message: what + " does not exist", remediate: remediate}
}

func invalid(message, remediate string) *problem {
	return &problem{status: http.StatusUnprocessableEntity, code: client.CodeInvalidInput, message: message, remediate: remediate}
}

func unavailable(message string) *problem {
	return &problem{
		status: http.StatusServiceUnavailable, code: client.CodeUnavailable, message: message,
		remediate: "Try again in a moment.", retryAfter: time.Second,
	}
}

// asProblem gives an error its status and words.
func asProblem(err error) *problem {
	var (
		p        *problem
		input    *client.InputError
		refused  *state.InvalidError
		decode   *events.DecodeError
		oversize *http.MaxBytesError
		sealed   *events.SealedError
	)
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &input):
		return invalid(input.Error(), correct(input.Field, input.Allowed))
	case errors.As(err, &refused):
		return invalid(refused.Error(), correct(refused.Field, refused.Allowed))
	case errors.As(err, &decode):
		return invalid(decode.Error(), correct(decode.Attribute, decode.Allowed))
	case errors.As(err, &oversize):
		return &problem{
			status: http.StatusRequestEntityTooLarge, code: client.CodeTooLarge,
			message:   fmt.Sprintf("the body is larger than %d bytes", oversize.Limit),
			remediate: "Send a smaller body.",
		}
	case errors.As(err, &sealed):
		return &problem{status: http.StatusInternalServerError, code: client.CodeInternal, message: sealed.Error(), remediate: sealed.Remediate()}
	case errors.Is(err, state.ErrNotFound):
		return &problem{
			status: http.StatusNotFound, code: client.CodeNotFound, message: words(err),
			remediate: "Check the name; GET /api/v1/projects and GET /api/v1/agents list those there are.",
		}
	case errors.Is(err, state.ErrTaken):
		return &problem{
			status: http.StatusConflict, code: client.CodeTaken, message: words(err),
			remediate: "Choose another name, or ask for a new token of the one that exists.",
		}
	case errors.Is(err, state.ErrUnavailable):
		return unavailable(storeAway)
	case errors.Is(err, events.ErrUnavailable):
		return unavailable(busAway)
	case errors.Is(err, events.ErrFull):
		return unavailable(words(err))
	default:
		return &problem{
			status: http.StatusInternalServerError, code: client.CodeInternal,
			message: "the gateway failed; its log says why", remediate: "Tell an operator the correlation ID.",
		}
	}
}

// correct says what to do about a field; what is allowed in it stands in the message already.
func correct(field string, allowed []string) string {
	what := field
	if what == "" {
		what = "the body"
	}
	switch {
	case allowed == nil:
		return "Correct " + what + " and call again."
	case len(allowed) == 0:
		return "Nothing is allowed in " + what + ": leave it out."
	default:
		return "Correct " + what + " and call again with what is allowed."
	}
}

// What an agent is told when a server behind the gateway does not answer. Where it is, and as whom it was asked, is for the
// log: an agent has no business with either.
const (
	storeAway = "Postgres (the state store) cannot be reached"
	busAway   = "Redis (the event bus) cannot be reached"
)

// words is an error's text, or its type where it has none.
func words(err error) string {
	if s := err.Error(); s != "" {
		return s
	}
	return fmt.Sprintf("%T", err)
}

// envelope is the problem as it goes out.
func (p *problem) envelope(c *call) client.Envelope {
	code, message, remediate := p.code, p.message, p.remediate
	if message == "" {
		message = http.StatusText(p.status)
	}
	if remediate == "" {
		remediate = "Try again; if that does not help, tell an operator the correlation ID."
	}
	env := client.Envelope{
		Status: client.StatusError, Error: &code, Message: message, Remediate: remediate, TaskID: nullable(p.taskID),
		CorrelationID: c.correlationID, RequestID: c.requestID,
	}
	if p.retryAfter > 0 {
		env.Retryable, env.RetryAfterMS = true, max(p.retryAfter.Milliseconds(), 1)
	}
	return env
}

// nullable is nil for an empty string.
func nullable(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// fail answers with an error. Who has gone away is not answered.
func (g *Gateway) fail(w http.ResponseWriter, c *call, err error) {
	p := asProblem(err)
	away := errors.Is(err, state.ErrUnavailable) || errors.Is(err, events.ErrUnavailable)
	if p.status == http.StatusInternalServerError || away {
		level := zerolog.ErrorLevel
		if errors.Is(err, context.Canceled) {
			level = zerolog.DebugLevel
		}
		g.cfg.Log.WithLevel(level).Err(err).Str("correlation_id", c.correlationID).Str("call", c.name).Msg("a call failed")
	}
	c.outcome = p.code
	if p.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(int64((p.retryAfter+time.Second-1)/time.Second), 10))
	}
	if p.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="sandboxd"`)
	}
	writeJSON(w, p.status, p.envelope(c))
}

// writeJSON answers with v. A client that does not read is not our error.
func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil { // wire types are strings, numbers and lists of them
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n'))
}
