package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
)

// tries bounds how often one engine is looked at anew in a run: each round follows a change that somebody else made.
const tries = 8

// ensure brings one engine to the record: as it stands, taken over, extended in place, replaced or made.
func (r *run) ensure(ctx context.Context, want events.Want) error {
	e, ok := r.w.cfg.Engines.Lookup(want.Engine)
	if !ok {
		return fmt.Errorf("no such engine: %s", want.Engine)
	}
	name := containerName(e, r.slug)
	for range tries {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		again, err := r.ensureOnce(ctx, e, name, want.Features)
		if err != nil || !again {
			return err
		}
	}
	return fmt.Errorf("%w: %s", errUnsettled, name)
}

// ensureOnce takes one step towards the record; again says that the situation has to be looked at anew.
func (r *run) ensureOnce(ctx context.Context, e engines.Engine, name string, features []string) (again bool, err error) {
	rec, isRecorded := r.recorded(e.Name)
	features = union(rec.Features, features) // an earlier call's features never disappear
	holder, err := r.w.cfg.Runtime.Inspect(ctx, name)
	free := errors.Is(err, engines.ErrNotFound)
	if err != nil && !free {
		return false, fmt.Errorf("inspect %s: %w", name, err)
	}
	switch {
	case !free && (!isRecorded || holder.ID != rec.ID):
		return r.clear(ctx, e, holder, features)
	case free && isRecorded: // a replacement that was not finished: give the name back
		err := r.w.cfg.Runtime.Rename(ctx, rec.ID, name)
		if errors.Is(err, engines.ErrNotFound) {
			return false, &deadError{rec.ID}
		}
		if err != nil && !errors.Is(err, engines.ErrNameTaken) {
			return false, fmt.Errorf("rename %s: %w", name, err)
		}
		return true, nil
	case isRecorded && covers(rec.Features, features):
		r.tell(ctx, events.Progress{Stage: events.StageReady, Engine: e.Name})
		return false, nil
	case isRecorded && e.InPlace && r.hasFeatureFiles(e, rec):
		return false, r.extend(ctx, e, rec, holder, features)
	}
	err = r.provide(ctx, e, name, features, rec, isRecorded)
	if errors.Is(err, engines.ErrNameTaken) || errors.Is(err, errRevoked) {
		return true, nil
	}
	return false, err
}

// provide claims a ready container, or makes one; a recorded one that it replaces lives on until the new one is proven.
func (r *run) provide(ctx context.Context, e engines.Engine, name string, features []string, rec events.Entry, replaces bool) error {
	if replaces {
		return r.create(ctx, e, name, features, &rec)
	}
	taken, err := r.claim(ctx, e, name, features)
	if taken || err != nil {
		return err
	}
	return r.create(ctx, e, name, features, nil)
}

// clear deals with a container that bears our name and is not the recorded one: left by a crash, a flush or a
// half-done replacement. It is taken over where that is safe and useful, else removed, if revoke agrees.
func (r *run) clear(ctx context.Context, e engines.Engine, holder engines.Container, features []string) (again bool, err error) {
	if !r.w.ours(holder) {
		return false, &strangerError{holder.Name}
	}
	f, err := r.w.identify(ctx, holder)
	if err != nil {
		return false, err
	}
	if f.Pooled && f.Slug != r.slug {
		return true, r.setAside(ctx, e, holder, f.Slug)
	}
	if newer(f.Epoch, r.epoch) {
		return false, errFenced
	}
	taken, err := r.takeOver(ctx, e, holder, f, features)
	if err != nil || taken {
		return taken, err
	}
	fate, err := r.w.remove(ctx, holder.ID, r.epoch, reasonConflict)
	if err != nil {
		return false, err
	}
	if fate == events.FateLost && f.Slug == r.slug && f.Pooled {
		entry, adopted, err := r.w.recordLost(ctx, e, holder, f, r.epoch)
		if adopted {
			r.remember(e.Name, entry)
		}
		if err != nil || adopted {
			return true, err
		}
	}
	if fate == events.FateLost || fate == events.FateBusy || fate == events.FateClaimed {
		return true, pause(ctx, 50*time.Millisecond)
	}
	return true, nil
}

// setAside takes our name from a container of a pool that is another's, or whose claim is forgotten everywhere: it is not removed
// for its name. It gets the name of the agent whose it is, where that is free; else whoever keeps the pools looks at it, or the
// janitor.
func (r *run) setAside(ctx context.Context, e engines.Engine, holder engines.Container, whose string) error {
	names := []string{holder.Name + "-" + shortID(holder.ID)}
	if whose != "" {
		names = []string{containerName(e, whose), names[0]}
	}
	var err error
	for _, name := range names {
		if err = r.w.cfg.Runtime.Rename(ctx, holder.ID, name); err == nil || !errors.Is(err, engines.ErrNameTaken) {
			break
		}
	}
	if err != nil && !errors.Is(err, engines.ErrNotFound) {
		return fmt.Errorf("rename %s, which is not ours by its claim: %w", holder.Name, err)
	}
	return nil
}

// takeOver records a container that an earlier run made and did not get to record.
func (r *run) takeOver(ctx context.Context, e engines.Engine, holder engines.Container, f events.Found, features []string) (bool, error) {
	rec, isRecorded := r.recorded(e.Name)
	if !r.mine(f) {
		return false, nil
	}
	access, active, ok := r.w.answers(ctx, e, holder)
	if !ok || isRecorded && (covers(rec.Features, features) || !covers(active, features)) {
		return false, nil // a recorded one yields only for a cause
	}
	if f.Pooled { // the attempt may have died before the durable store knew
		known, err := r.storeClaim(ctx, e, holder.ID, events.Claim{Born: f.Born, Epoch: f.Epoch, Tenancy: f.Tenancy})
		if err != nil || !known {
			return false, err
		}
	}
	entry, err := r.w.entry(e, f, holder, access, active)
	if err != nil {
		return false, err
	}
	err = r.put(ctx, e, entry, events.Created, "made by an earlier attempt")
	if errors.Is(err, errRevoked) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if isRecorded {
		r.supersede(ctx, rec.ID)
	}
	return true, nil
}

// mine says that a container that was found lives its first life under this very tenancy of this agent.
func (r *run) mine(f events.Found) bool {
	return f.FirstLife && f.Tenancy == r.seen && f.Slug == r.slug && !slices.Contains(r.gone, f.ID)
}

// answers probes a container with the passwords from its environment, and reads off which features are active.
func (*Worker) answers(ctx context.Context, e engines.Engine, c engines.Container) (engines.Access, []string, bool) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for _, addr := range c.Addrs {
		a := accessTo(c, addr)
		if a.Password == "" || e.Probe(ctx, a) != nil {
			continue
		}
		var active []string
		if c.Image == e.Feature && e.Feature != "" {
			for _, f := range e.Features {
				if e.Verify(ctx, a, []string{f}) == nil {
					active = append(active, f)
				}
			}
		}
		return a, active, true
	}
	return engines.Access{}, nil, false
}

func accessTo(c engines.Container, addr string) engines.Access {
	return engines.Access{Addr: addr, Password: c.Env[engines.EnvPassword], AdminPassword: c.Env[engines.EnvAdminPassword]}
}

// hasFeatureFiles says that the recorded container runs the feature image.
func (*run) hasFeatureFiles(e engines.Engine, rec events.Entry) bool {
	var i engines.Instance
	return json.Unmarshal(rec.Payload, &i) == nil && e.Feature != "" && i.Image == e.Feature
}

// extend activates more features in a running server.
func (r *run) extend(ctx context.Context, e engines.Engine, rec events.Entry, c engines.Container, features []string) error {
	r.tell(ctx, events.Progress{Stage: events.StageActivating, Engine: e.Name})
	access, _, ok := r.w.answers(ctx, e, c)
	if !ok {
		return fmt.Errorf("%s does not answer its own password, and could not be extended: %w", c.Name, errNotReady)
	}
	if err := activate(ctx, e, access, features); err != nil {
		return err
	}
	reason := "activated in place: " + strings.Join(missing(rec.Features, features), ", ")
	rec.Features = features
	err := r.put(ctx, e, rec, events.Extended, reason)
	if errors.Is(err, errRevoked) {
		return errFenced // only an end revokes what was recorded
	}
	if err == nil {
		r.tell(ctx, events.Progress{Stage: events.StageReady, Engine: e.Name})
	}
	return err
}

// activate adds features to a running server, and verifies them.
func activate(ctx context.Context, e engines.Engine, a engines.Access, features []string) error {
	if err := e.Activate(ctx, a, features); err != nil {
		return fmt.Errorf("activate %s: %w", strings.Join(features, ", "), err)
	}
	if err := e.Verify(ctx, a, features); err != nil {
		return fmt.Errorf("verify %s: %w", strings.Join(features, ", "), err)
	}
	return nil
}

// entry is what the record keeps of a running container.
func (w *Worker) entry(e engines.Engine, f events.Found, c engines.Container, a engines.Access, features []string) (events.Entry, error) {
	name := containerName(e, f.Slug)
	host, port := name, e.Port
	if w.cfg.Loopback {
		host, port = "127.0.0.1", c.LoopbackPort
	}
	payload, err := json.Marshal(engines.Instance{Credentials: e.Credentials(host, port, a.Password), Image: c.Image})
	if err != nil {
		return events.Entry{}, fmt.Errorf("encode the credentials of %s: %w", name, err)
	}
	return events.Entry{
		ID: c.ID, Name: name, Start: c.StartedAt, Epoch: f.Epoch, Born: f.Born, Host: w.host,
		Features: features, Payload: payload, Pooled: f.Pooled,
	}, nil
}

// newer compares epochs: decimal numbers without leading zeros.
func newer(a, b string) bool {
	if len(a) != len(b) {
		return len(a) > len(b)
	}
	return a > b
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
