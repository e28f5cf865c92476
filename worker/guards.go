package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/state"
)

// admitted is what a request that passed the guards is to be answered with.
type admitted struct {
	seen  sight
	stood events.Standing // what seen began with
	asked []events.Want   // what it named, or the whole set
	set   []events.Want   // the whole opted set; the first request makes all of it
}

// guard judges a request by the guards in their order. It returns a refusal, or what was admitted; an error leaves
// the entry to be delivered again.
func (w *Worker) guard(ctx context.Context, d events.Delivery, q events.Requested) (admitted, *events.Refusal, error) {
	if !slices.Contains(w.cfg.Roles, q.Role) {
		return admitted{}, refuseRole(q.Role, w.cfg.Roles), nil
	}
	stood, err := w.cfg.Bus.Standing(ctx, d)
	if err != nil {
		return w.refuseUnlessBus(fmt.Errorf("read what the guards begin with: %w", err))
	}
	on, err := w.enabled(ctx, stood.Switch)
	if err != nil {
		return w.refuseUnlessBus(err)
	}
	if !on {
		return admitted{}, refuseSwitch(), nil
	}
	seen, err := w.lookFrom(ctx, d.Event.Subject, stood.Agent)
	if err != nil {
		return w.refuseUnlessBus(err)
	}
	if seen.tenancy.Task == "" {
		return admitted{seen: seen}, refuseEngagement("there is no active engagement with a project's task"), nil
	}
	if seen.tenancy.Owner == "" {
		return admitted{seen: seen}, refuseEngagement("the agent's container " + agentName(d.Event.Subject) + " is not running: it is gone, or never was there"), nil
	}
	project, err := w.cfg.Store.Project(ctx, seen.tenancy.Project)
	unknown := errors.Is(err, state.ErrNotFound)
	if err != nil && !unknown {
		return w.refuseUnlessBus(fmt.Errorf("read project %s: %w", seen.tenancy.Project, err))
	}
	if unknown || len(project.Services) == 0 {
		return admitted{seen: seen}, refuseProject(seen.tenancy.Project, unknown), nil
	}
	a, refusal := w.admit(project, q)
	a.seen, a.stood = seen, stood
	return a, refusal, nil
}

// admit is the part of the guards that needs no look-up: 4, 5 and 6, the standing set included.
func (w *Worker) admit(p state.Project, q events.Requested) (admitted, *events.Refusal) {
	opted := slices.Sorted(slices.Values(p.Services))
	if bad := missing(opted, slices.Sorted(slices.Values(q.Services))); len(bad) > 0 {
		return admitted{}, refuseServices(bad, opted)
	}
	allowed := w.cfg.Engines.Allowed()
	var outside []string
	for service := range q.Extensions {
		if !slices.Contains(opted, service) {
			outside = append(outside, service)
		}
	}
	if len(outside) > 0 {
		return admitted{}, refuseExtensionService(outside, opted, allowed)
	}
	var a admitted
	bad := map[string][]string{}
	for _, e := range w.cfg.Engines {
		if !slices.Contains(opted, e.Name) {
			continue
		}
		features := union(p.Extensions[e.Name], q.Extensions[e.Name])
		if m := missing(allowed[e.Name], features); len(m) > 0 {
			bad[e.Name] = m
		}
		want := events.Want{Engine: e.Name, Features: features}
		a.set = append(a.set, want)
		if q.Services == nil || slices.Contains(q.Services, e.Name) {
			a.asked = append(a.asked, want)
		}
	}
	if len(bad) > 0 {
		return admitted{}, refuseExtensions(bad, allowed)
	}
	if len(a.asked) == 0 {
		return admitted{}, refuseServices(opted, w.cfg.Engines.Names())
	}
	return a, nil
}

// enabled is what the mirrored master switch says: the run-time value where one is set, else the environment's.
func (w *Worker) enabled(ctx context.Context, v events.Switch) (_ bool, err error) {
	if v == events.SwitchMissing {
		if v, err = w.mirrorSwitch(ctx); err != nil {
			return false, err
		}
	}
	switch v {
	case events.SwitchOn:
		return true, nil
	case events.SwitchOff:
		return false, nil
	default:
		return w.cfg.Enabled, nil
	}
}

// mirrorSwitch writes the durable store's value of the switch to Redis, where requests read it, and gives what stands there
// then: an operator may have changed it meanwhile.
func (w *Worker) mirrorSwitch(ctx context.Context) (events.Switch, error) {
	f, err := w.cfg.Store.Flag(ctx, events.SwitchFlag)
	if err != nil {
		return events.SwitchMissing, fmt.Errorf("read flag %s: %w", events.SwitchFlag, err)
	}
	v, err := w.cfg.Bus.MirrorSwitch(ctx, f.Value, f.Revision)
	if err != nil {
		return v, fmt.Errorf("mirror flag %s: %w", events.SwitchFlag, err)
	}
	return v, nil
}

// refuseUnlessBus turns a failed look-up into guard 8, except where the bus itself failed: nobody could be told.
func (w *Worker) refuseUnlessBus(err error) (admitted, *events.Refusal, error) {
	if errors.Is(err, events.ErrUnavailable) || errors.Is(err, context.Canceled) {
		return admitted{}, nil, err
	}
	return admitted{}, w.unmet(err), nil
}

// unmet is the refusal of what could not be done for this cause, which the log keeps whole.
func (w *Worker) unmet(err error) *events.Refusal {
	w.cfg.Log.Warn().Err(err).Msg("a request could not be served")
	return classify(err)
}
