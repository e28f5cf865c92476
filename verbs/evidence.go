package verbs

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
)

// modulesAlias is the second key that the wire has for active features.
const modulesAlias = "available_modules"

// evidence says what an agent is given for one engine, from what the record keeps of it.
func (g *Gateway) evidence(name string, payload json.RawMessage, features []string, expires time.Time) (client.Evidence, error) {
	var inst engines.Instance
	if err := json.Unmarshal(payload, &inst); err != nil {
		return client.Evidence{}, fmt.Errorf("read what is recorded of %s: not the JSON of an instance", name)
	}
	ev := client.Evidence{
		Host: inst.Host, Port: inst.Port, User: nullable(inst.User), Password: inst.Password,
		Database: nullable(inst.Database), URL: inst.URL, AuthDatabase: inst.AuthDatabase,
		ExpiresAt: expires.UTC(), AvailableExtensions: features, Env: map[string]string{},
	}
	engine, ok := g.cfg.Engines.Lookup(name)
	if !ok { // a newer worker's: the credentials serve all the same
		return ev, nil
	}
	if engine.FeaturesAlias == modulesAlias {
		ev.AvailableModules = features
	}
	if engine.Env != nil {
		ev.Env = engine.Env(inst.Credentials)
	}
	return ev, nil
}

// replyEnvelope is a terminal reply as its requester reads it.
func (g *Gateway) replyEnvelope(c *call, requestID string, r events.Reply) client.Envelope {
	switch {
	case r.State == events.StateOK && r.Blanked:
		return g.refusal(c, requestID, r.Task, events.Refusal{
			Message:   "the sandbox was removed after this request was answered, and its credentials with it",
			Remediate: "Call request_sandbox() again; if your work has ended, call give_me_work first.",
			Retryable: true,
		})
	case r.State != events.StateOK && r.Refusal != nil:
		return g.refusal(c, requestID, r.Task, *r.Refusal)
	case r.State != events.StateOK:
		return g.refusal(c, requestID, r.Task, events.Refusal{Message: "the request ended as " + string(r.State)})
	}
	env := client.Envelope{
		Status: client.StatusInProgress, TaskID: nullable(r.Task), Evidence: map[string]client.Evidence{},
		Next:            nullable("Use the credentials in evidence, or export the env of each service; call request_sandbox() again at any time."),
		ContextBriefing: nullable("These databases are yours alone and vanish, with everything in them, when your work on this task ends."),
		CorrelationID:   c.correlationID, RequestID: requestID,
	}
	for name, e := range r.Engines {
		ev, err := g.evidence(name, e.Payload, e.Features, r.Expires)
		if err != nil {
			g.cfg.Log.Error().Err(err).Str("correlation_id", c.correlationID).Msg("a reply cannot be read")
			return g.refusal(c, requestID, r.Task, events.Refusal{
				Message: err.Error(), Remediate: "Worker and gateway are of different versions: tell an operator.",
			})
		}
		ev.Outcome, ev.Reason = string(e.Outcome), e.Reason
		env.Evidence[name] = ev
	}
	return env
}

// refusal is the envelope of a refused request: invalid_state, HTTP 200.
func (*Gateway) refusal(c *call, requestID, task string, r events.Refusal) client.Envelope {
	p := problem{status: 200, code: client.CodeInvalidState, message: r.Message, remediate: r.Remediate, taskID: task}
	if p.message == "" {
		p.message = "the request was refused without a reason"
	}
	env := p.envelope(c)
	env.RequestID = requestID
	env.Retryable, env.RetryAfterMS = r.Retryable, r.RetryAfterMS
	return env
}

// guard7 refuses a request that no worker took.
func (*Gateway) guard7(why string) events.Refusal {
	return events.Refusal{
		Guard: 7, Message: why, Retryable: true, RetryAfterMS: 1000,
		Remediate: "Retry: call request_sandbox() again in a moment.",
	}
}

// guard7Away is guard 7 for a bus that does not answer; the log keeps the cause.
func (g *Gateway) guard7Away(err error) events.Refusal {
	g.cfg.Log.Warn().Err(err).Msg("a request met a bus that does not answer")
	return g.guard7(busAway)
}
