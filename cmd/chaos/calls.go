package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/worker/workertest"
)

// insist repeats a call until it is answered, or the run is over. A refusal that is not about the moment is a violation.
func (r *run) insist(call func(context.Context) error) {
	for {
		ctx, cancel := context.WithTimeout(r.facts.over, 20*time.Second)
		err := call(ctx)
		cancel()
		if err == nil {
			return
		}
		var refused *client.Error
		if errors.As(err, &refused) && refused.HTTPStatus < http.StatusInternalServerError && !refused.Envelope.Retryable {
			r.facts.bad("api", "%v", err)
			return
		}
		r.facts.count("calls repeated")
		if !sleep(r.facts.over, 50*time.Millisecond) {
			return
		}
	}
}

// startWork begins or confirms an engagement.
func (a *agent) startWork(id string) {
	d := events.Started{TaskID: a.task, Project: a.project.Slug}
	if a.owner != "" {
		d.Owner = "container"
	}
	a.r.facts.works(a.slug, a.task)
	a.r.publish(workEvent(id, events.WorkStarted, a.slug, d))
}

// endWork ends whatever the agent works on: by its own verb, or by the choreographer's word.
func (a *agent) endWork(id string) {
	a.r.facts.works(a.slug, "")
	if a.dice.Once(2) {
		a.r.publish(workEvent(id, events.WorkEnded, a.slug, events.Ended{Verb: "i_am_done", TaskID: a.task}))
		return
	}
	a.r.insist(func(ctx context.Context) error { _, err := a.client.EndWork(ctx, "i_am_done", ""); return err })
}

// publish repeats until the event is stored.
func (r *run) publish(e client.Event) (p client.Publication) {
	r.insist(func(ctx context.Context) error {
		got, err := r.chief.PublishEvent(ctx, e)
		if err == nil {
			p = *got
		}
		return err
	})
	return p
}

// sayStopped says that an owner has gone.
func (r *run) sayStopped(slug, id, owner string) {
	if owner == "" {
		return
	}
	if r.publish(workEvent(id, events.AgentStopped, slug, events.Stopped{Owner: owner})).Moot {
		r.facts.count("stops told too late")
	} else {
		r.facts.count("stops told in time")
	}
}

// spoilOnce adds an entry unless it did so before: an answer that was lost must not count twice.
// KEYS: the work stream, a mark of this entry. ARGV: the entry's fields.
const spoilOnce = `if redis.call('SET', KEYS[2], 1, 'NX') then redis.call('XADD', KEYS[1], '*', unpack(ARGV)) end return 1`

// spoil adds an entry that cannot be decoded.
func (r *run) spoil(ctx context.Context, mark string, d *workertest.Dice) {
	fields := workertest.Pick(d, [][]any{{"event", "{"}, {"nonsense", "1"}, {"event", `{"type":"sandbox.requested","id":"x"}`}})
	keys := []string{workertest.EventsKey(r.cell), fmt.Sprintf("{%s}:spoilt:%s", r.cell, mark)}
	for r.facts.over.Err() == nil {
		if r.adm.Eval(ctx, spoilOnce, keys, fields...).Err() == nil {
			r.facts.happened(entryBroken)
			return
		}
		if !sleep(ctx, 30*time.Millisecond) {
			return
		}
	}
}

// request publishes a request; the function it gives waits for the terminal reply and checks it. Nil when the reply was there at
// once, or the run is over.
func (a *agent) request(q client.SandboxRequest) (collect func() *client.Envelope) {
	p, owner, task, began := a.project, a.whose(), a.task, time.Now()
	calls := a.calls
	id, refused := a.post(q)
	switch {
	case refused != nil:
		a.r.facts.ask(refused.RequestID, workertest.Asked{Task: task, Owner: owner})
		a.judge(p, q, owner, refused)
		a.r.facts.answered(outcome(refused), time.Since(began), false)
		return nil
	case id == "":
		return nil
	}
	a.r.facts.ask(id, workertest.Asked{Task: task, Owner: owner})
	return func() *client.Envelope {
		env, progressed := a.follow(calls, id, began)
		if env == nil {
			return nil
		}
		a.r.lapse(a.slug, id, a.lapses)
		a.judge(p, q, owner, env)
		a.r.facts.answered(outcome(env), time.Since(began), !progressed)
		return env
	}
}

// post publishes a request in the asynchronous form, again where no answer comes: it is not known then whether there was one.
// It gives the request's ID, or the envelope of a gateway that could not publish it.
func (a *agent) post(q client.SandboxRequest) (id string, refused *client.Envelope) {
	for a.r.facts.over.Err() == nil {
		id, refused, err := a.postOnce(q)
		if err == nil {
			return id, refused
		}
		var no *client.Error
		if errors.As(err, &no) && no.HTTPStatus < http.StatusInternalServerError && !no.Envelope.Retryable {
			a.r.facts.bad("api", "request_sandbox of %s: %v", a.slug, err)
			return "", nil
		}
		a.r.facts.count("requests asked anew")
		sleep(a.r.facts.over, 50*time.Millisecond)
	}
	return "", nil
}

func (a *agent) postOnce(q client.SandboxRequest) (id string, refused *client.Envelope, err error) {
	ctx, cancel := context.WithTimeout(a.r.facts.over, a.r.times.Accept+10*time.Second)
	defer cancel()
	body, err := json.Marshal(q)
	if err != nil {
		return "", nil, fmt.Errorf("write a request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.r.url+"/api/v1/do/request_sandbox", bytes.NewReader(body))
	if err != nil {
		return "", nil, fmt.Errorf("make a request: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+a.token)
	req.Header.Set("Prefer", "respond-async")
	resp, err := a.r.http.Do(req)
	if err != nil {
		return "", nil, fmt.Errorf("reach the gateway: %w", err)
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", nil, fmt.Errorf("read the answer: %w", err)
	}
	var env client.Envelope
	if resp.StatusCode == http.StatusAccepted {
		var ok client.Accepted
		err = json.Unmarshal(said, &ok)
		return ok.RequestID, nil, err //nolint:wrapcheck // told as it is
	}
	if err := json.Unmarshal(said, &env); err != nil {
		return "", nil, fmt.Errorf("answer %d: %w", resp.StatusCode, err)
	}
	if resp.StatusCode != http.StatusOK {
		return "", nil, &client.Error{HTTPStatus: resp.StatusCode, Envelope: env}
	}
	return "", &env, nil
}

// follow waits for the end of a request, across whatever happens to the gateway. Nil when the agent has hung up, or nobody knows
// of the request any more.
func (a *agent) follow(calls context.Context, id string, published time.Time) (env *client.Envelope, progressed bool) {
	for {
		env, err := a.client.Follow(calls, id, func(client.Progress) { progressed = true })
		switch {
		case err == nil:
			return env, progressed
		case a.r.facts.over.Err() != nil:
			a.r.facts.bad("L1", "%s: request %s was never answered", a.slug, id)
			return nil, progressed
		case calls.Err() != nil:
			a.r.facts.count("requests whose agent hung up")
			return nil, progressed
		case client.IsStatus(err, http.StatusNotFound):
			// After a flush only the gateway that published it can publish it again.
			if a.r.o.Mode != workertest.Flush || a.r.gateway.livesSince(published) {
				a.r.facts.bad("L1", "%s: request %s is not known any more: %v", a.slug, id, err)
			}
			a.r.facts.count("requests lost with their gateway and a flush")
			return nil, progressed
		}
		a.r.facts.count("calls repeated")
		sleep(calls, 100*time.Millisecond)
	}
}

// lapse takes away half of the reply streams that were read: a request that is delivered again then finds none.
func (r *run) lapse(slug, id string, d *workertest.Dice) {
	if r.facts.isFaulty() && d.Once(2) {
		ctx, cancel := context.WithTimeout(r.facts.over, time.Second)
		defer cancel()
		if r.adm.Del(ctx, r.bus.ReplyStream(slug, id)).Err() == nil {
			r.facts.happened(replyLapsed)
		}
	}
}

const outcomeOK = "ok"

// outcome names an envelope for the report.
func outcome(env *client.Envelope) string {
	switch {
	case !env.Failed():
		return outcomeOK
	case env.Retryable:
		return "refused, try again"
	default:
		return "refused"
	}
}

// judge checks a terminal reply as the agent sees it.
func (a *agent) judge(p project, q client.SandboxRequest, owner string, env *client.Envelope) {
	bad := a.r.facts.bad
	if !env.Failed() {
		a.judgeHanded(p, q, env)
		return
	}
	a.r.facts.refused(env.Message)
	if env.Message == "" || env.Remediate == "" {
		bad("envelope", "request %s was refused without a message or a remedy: %+v", env.RequestID, env)
	}
	// A life does not end and begin again: who lives after the reply has lived all the time since the request.
	gone := strings.Contains(env.Message, "is gone")
	if gone && owner != events.OwnerLease && owner == a.r.place.agentOwner(a.slug) {
		bad("H10", "request %s was refused for its owner had gone, and %s lives", env.RequestID, owner)
	}
}

// judgeHanded: H9, everything that was asked for is in the reply and nothing else; H5, it is this agent's.
func (a *agent) judgeHanded(p project, q client.SandboxRequest, env *client.Envelope) {
	asked := p.Services
	if q.Services != nil {
		asked = q.Services
	}
	for _, engine := range asked {
		got, ok := env.Evidence[engine]
		for _, f := range slices.Concat(q.Extensions[engine], p.Extensions[engine]) {
			ok = ok && slices.Contains(got.AvailableExtensions, f)
		}
		if !ok {
			a.r.facts.bad("H9", "request %s asked for %s with %v and was answered with %v", env.RequestID, engine, q.Extensions[engine], got.AvailableExtensions)
		}
	}
	for engine, got := range env.Evidence {
		if !slices.Contains(asked, engine) {
			a.r.facts.bad("H9", "request %s was answered with %s, which it did not ask for", env.RequestID, engine)
		}
		if !a.r.place.ownedBy(got.Password, a.slug) {
			a.r.facts.bad("H5", "request %s of %s was answered with another's credentials of %s", env.RequestID, a.slug, engine)
		}
	}
}
