package worker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
)

// proof is how a started container is proven, whoever has made it and wants to know how far it is.
type proof struct {
	w     *Worker
	tell  func(context.Context, events.Progress)
	phase func(name string, since time.Time)
}

func (r *run) proof() proof { return proof{w: r.w, tell: r.tell, phase: r.log.phase} }

// prove waits until the server can be worked with: it answers its administrator, its features are active, and it
// answers the agent. A container that exits meanwhile is an error at once.
func (p proof) prove(ctx context.Context, e engines.Engine, id string, l engines.Launch, features []string) (engines.Access, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, e.ReadyWithin, fmt.Errorf("%s was %w: no authenticated answer within %s", e.Name, errNotReady, e.ReadyWithin))
	defer cancel()
	ctx, exited := context.WithCancelCause(ctx)
	var watching together
	watching.Go(func() {
		if code, err := p.w.cfg.Runtime.WaitExit(ctx, id); err == nil {
			exited(p.exitError(context.WithoutCancel(ctx), e.Name, id, code, l))
		}
	})
	access, err := p.makeReady(ctx, e, id, features)
	if err != nil && ctx.Err() == nil { // a connection that broke may be the first sign of an exit: wait for the other
		t := time.NewTimer(500 * time.Millisecond)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	exited(nil)
	watching.Wait()
	return access, err
}

// exitError says why a container stopped; its log tail has every password of it blanked.
func (p proof) exitError(ctx context.Context, engine, id string, code int, l engines.Launch) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	x := &engines.ExitError{Engine: engine, ExitCode: code}
	if c, err := p.w.cfg.Runtime.Inspect(ctx, id); err == nil {
		x.OOMKilled = c.OOMKilled
	}
	if text, err := p.w.cfg.Runtime.Logs(ctx, id, 20); err == nil {
		x.LogTail = blank(strings.TrimSpace(text), l.Env[engines.EnvPassword], l.Env[engines.EnvAdminPassword])
	}
	return x
}

// makeReady polls until the administrator is answered, then activates, verifies and probes as the agent.
func (p proof) makeReady(ctx context.Context, e engines.Engine, id string, features []string) (engines.Access, error) {
	p.tell(ctx, events.Progress{Stage: events.StageProbing, Engine: e.Name})
	c, err := p.w.cfg.Runtime.Inspect(ctx, id)
	if err != nil {
		return engines.Access{}, fmt.Errorf("inspect a new %s: %w", e.Name, err)
	}
	t := time.Now()
	access, err := awaitUp(ctx, e, c)
	p.phase("probe", t)
	if err != nil {
		return access, err
	}
	t = time.Now()
	if len(features) > 0 {
		p.tell(ctx, events.Progress{Stage: events.StageActivating, Engine: e.Name})
	}
	if err := e.Activate(ctx, access, features); err != nil {
		return access, fmt.Errorf("activate %s: %w", list(features), err)
	}
	if err := e.Verify(ctx, access, features); err != nil {
		return access, fmt.Errorf("verify %s: %w", list(features), err)
	}
	if err := e.Probe(ctx, access); err != nil {
		return access, fmt.Errorf("probe as the agent: %w", err)
	}
	p.phase("activate", t)
	return access, nil
}

// awaitUp asks each address in turn until one answers; the pause between rounds grows from 3 to 25 ms.
func awaitUp(ctx context.Context, e engines.Engine, c engines.Container) (engines.Access, error) {
	if len(c.Addrs) == 0 {
		// It has no address when it is not running: what WaitExit says will be the cause.
		return engines.Access{}, fmt.Errorf("container %s has no address", c.Name)
	}
	limit := 5 * time.Second
	if len(c.Addrs) > 1 {
		limit = time.Second // an address that does not lead there must not keep the other one waiting
	}
	for wait := 3 * time.Millisecond; ; wait = min(wait*3/2, 25*time.Millisecond) {
		for _, addr := range c.Addrs {
			a := accessTo(c, addr)
			actx, cancel := context.WithTimeout(ctx, limit)
			err := e.Up(actx, a)
			cancel()
			if err == nil {
				return a, nil
			}
		}
		if err := pause(ctx, wait); err != nil {
			return engines.Access{}, err
		}
	}
}

// blank takes secrets out of a text that people will read.
func blank(text string, secrets ...string) string {
	for _, s := range slices.DeleteFunc(secrets, func(s string) bool { return s == "" }) {
		text = strings.ReplaceAll(text, s, "********")
	}
	return text
}
