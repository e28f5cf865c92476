package main

import (
	"context"
	"fmt"
	"time"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/worker/workertest"
)

// settle waits until nothing is under way and nothing is wrong at rest. What is still wrong at the end of the time is a violation.
func (r *run) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.times.Rest)
	defer cancel()
	for _, v := range workertest.AwaitRest(ctx, r.times.Grace/3, r.atRest) {
		r.facts.bad(v.Check, "%s", v.Detail)
	}
}

// endAll lets all work end: nothing may be left then.
func (r *run) endAll(ctx context.Context) {
	for _, a := range r.agents {
		a.endWork("last end:" + a.slug)
	}
	r.settle(ctx)
	left, err := r.place.containers(ctx)
	if err != nil {
		r.facts.bad("harness", "%v", err)
	}
	for _, c := range left {
		if c.ID != r.stranger && !workertest.Waits(c) {
			r.facts.bad("R3", "%s is left when all work has ended", c.Name)
		}
	}
}

// atRest gathers how everything stands.
func (r *run) atRest(ctx context.Context) (workertest.Rest, error) {
	r.readAudit(ctx)
	var slugs []string
	for _, a := range r.agents {
		slugs = append(slugs, a.slug)
	}
	sight := workertest.Sight{Bus: r.bus, Redis: r.adm, Cell: r.cell, Agents: slugs, OwnerOf: r.place.agentOwner, Store: r.store}
	rest, err := sight.Rest(ctx)
	if err != nil {
		return rest, err
	}
	r.facts.mu.Lock()
	rest.Garbage = int64(r.facts.garbage)
	r.facts.mu.Unlock()
	rest.Garbage += r.facts.exhausted()
	rest.Workers, rest.Names, rest.Stranger = len(r.workers), r.nameOf, r.stranger
	rest.LettersMayDiffer = r.o.Mode == workertest.Flush
	if rest.Containers, err = r.place.containers(ctx); err != nil {
		return rest, err
	}
	rest.Truth, rest.Ceilings = r.place.truth(), r.ceilings()
	return rest, sight.Pools(ctx, &rest)
}

// survive is the flush with every sandbox alive and nothing else going on: each keeps its containers and passwords (F1).
func (r *run) survive(ctx context.Context) {
	for _, a := range r.agents {
		a.callAnew()
		a.task, a.project, a.engaged = a.slug+"-last", r.all[0], true
		a.startWork("last:" + a.slug)
	}
	former := r.sandboxes()
	if !sleep(ctx, r.times.Grace+500*time.Millisecond) { // the janitor leaves younger containers alone
		return
	}
	r.redisBusy.Lock()
	flushed := r.flush(ctx)
	r.redisBusy.Unlock()
	if !flushed {
		return
	}
	r.facts.happened(redisFlushed)
	present := r.sandboxes()
	for slug, sandbox := range former {
		for engine, was := range sandbox {
			if is := present[slug][engine]; was != is {
				r.facts.bad("F1", "%s: %s has other credentials after the flush", slug, engine)
			}
			r.facts.count("engines that survived the last flush")
		}
	}
}

// sandboxes asks for what every agent can have, all at once, and gives the passwords by agent and engine.
func (r *run) sandboxes() map[string]map[string]string {
	type answer struct {
		slug string
		env  *client.Envelope
	}
	answers := make(chan answer, len(r.agents))
	for i, a := range r.agents {
		go func() { answers <- answer{a.slug, a.sandbox(i == 0)} }()
	}
	out := map[string]map[string]string{}
	for range r.agents {
		a := <-answers
		out[a.slug] = map[string]string{}
		if a.env == nil {
			continue
		}
		for engine, e := range a.env.Evidence {
			out[a.slug][engine] = e.Password
		}
	}
	return out
}

// sandbox asks for everything, again where the agent is told to try again. The first agent cannot have a mongo: a stranger bears
// its name.
func (a *agent) sandbox(first bool) (env *client.Envelope) {
	var q client.SandboxRequest
	for _, e := range a.project.Services {
		if e != "mongo" || !first {
			q.Services = append(q.Services, e)
		}
	}
	for range 10 {
		if collect := a.request(q); collect != nil {
			env = collect()
		}
		if a.r.facts.over.Err() != nil || env != nil && !env.Failed() {
			return env
		}
		sleep(a.r.facts.over, 200*time.Millisecond)
	}
	why := "no answer"
	if env != nil {
		why = fmt.Sprintf("%s; %s", env.Message, env.Remediate)
	}
	a.r.facts.bad("F1", "%s got no sandbox with nothing going on: %s", a.slug, why)
	return env
}
