package verbs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/state"
)

// standIn answers events through the bus as a worker would, but makes no containers: a test double. It knows one project,
// opted into every engine.
type standIn struct {
	bus      *events.Bus
	engines  engines.Registry
	password string

	// hold, where it is set, is waited for after a request was accepted.
	hold chan struct{}
	// place, where it is not 0, is told as the place in a line before anything is made.
	place int
	// fail, where it is set, is how every provision ends.
	fail *events.Refusal

	mu   sync.Mutex
	made map[string]int // provisions, by agent
}

func (w *standIn) provisions(slug string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.made[slug]
}

func (w *standIn) handle(ctx context.Context, d events.Delivery) {
	switch d.Event.Type {
	case events.SandboxRequested:
		w.request(ctx, d)
	case events.LogsRequested:
		var q events.LogsWanted
		_ = json.Unmarshal(d.Event.Data, &q)
		logs := map[string]string{}
		for _, e := range w.engines {
			if q.Engine == "" || q.Engine == e.Name {
				logs[e.Name] = fmt.Sprintf("%d lines of %s of %s", q.Lines, e.Name, d.Event.Subject)
			}
		}
		body, _ := json.Marshal(map[string]any{"logs": logs})
		_, _ = w.bus.AnswerBody(ctx, d, body)
	default:
		_, _ = w.bus.Finish(ctx, d)
	}
}

func (w *standIn) refuse(ctx context.Context, d events.Delivery, guard int, message, remediate string) {
	_, _ = w.bus.Refuse(ctx, d, events.StateRefused, events.Refusal{Guard: guard, Message: message, Remediate: remediate}, "")
}

func (w *standIn) request(ctx context.Context, d events.Delivery) {
	var q events.Requested
	_ = json.Unmarshal(d.Event.Data, &q)
	if q.Role != "developer" && q.Role != "qa" {
		w.refuse(ctx, d, 0, "the role "+q.Role+" does not carry request_sandbox", "Only these roles carry it: developer, qa.")
		return
	}
	known, err := w.bus.Agent(ctx, d.Event.Subject)
	if err != nil {
		return
	}
	if known.Task == "" {
		w.refuse(ctx, d, 2, "no active work", "Call give_me_work first.")
		return
	}
	asked, bad := w.wants(q)
	if asked == nil {
		w.refuse(ctx, d, 4, "not opted in: "+bad, "Allowed: mongo, postgres, redis.")
		return
	}
	set, _ := w.wants(events.Requested{Extensions: q.Extensions})
	for w.open(ctx, d, asked, set) == events.Again { // the owner was set by another request meanwhile: look again
	}
}

// open opens a request and works on it. It gives the verdict.
func (w *standIn) open(ctx context.Context, d events.Delivery, asked, set []events.Want) events.Verdict {
	known, err := w.bus.Agent(ctx, d.Event.Subject)
	if err != nil {
		return events.Lost
	}
	begun, err := w.bus.Begin(ctx, d, events.BeginArgs{
		Asked: asked, Set: set, HashOwner: known.Owner,
		Seen: events.Tenancy{Task: known.Task, Project: known.Project, Owner: events.OwnerLease},
	})
	if err != nil {
		return events.Lost
	}
	switch begun.Verdict {
	case events.Hit:
		checked := map[string]string{}
		for name, e := range begun.Record {
			checked[name] = e.ID
		}
		v, _ := w.bus.AnswerHit(ctx, d, asked, checked)
		return v
	case events.Run:
		w.provision(ctx, d, begun, asked, set)
	default: // parked, answered, or another's
	}
	return begun.Verdict
}

// wants lists what a request asks for, or names what there is not.
func (w *standIn) wants(q events.Requested) (out []events.Want, unknown string) {
	services := q.Services
	if services == nil {
		services = w.engines.Names()
	}
	for _, name := range services {
		if _, ok := w.engines.Lookup(name); !ok {
			return nil, name
		}
		out = append(out, events.Want{Engine: name, Features: slices.Sorted(slices.Values(q.Extensions[name]))})
	}
	return out, ""
}

func (w *standIn) provision(ctx context.Context, d events.Delivery, b events.Begun, asked, set []events.Want) {
	slug := d.Event.Subject
	w.mu.Lock()
	w.made[slug]++
	w.mu.Unlock()
	if w.place > 0 {
		_ = w.bus.Tell(ctx, d, b.Epoch, events.Progress{Stage: events.StageQueued, Position: w.place})
	}
	if w.hold != nil {
		select {
		case <-w.hold:
		case <-ctx.Done():
			return
		}
	}
	if w.fail != nil {
		_, _ = w.bus.Settle(ctx, d, b.Epoch, w.fail, asked)
		return
	}
	for _, want := range set {
		_ = w.bus.Tell(ctx, d, b.Epoch, events.Progress{Stage: events.StageCreating, Engine: want.Engine})
		e, _ := w.engines.Lookup(want.Engine)
		name := "roboco-sandbox-" + e.Short + "-" + slug
		payload, _ := json.Marshal(engines.Instance{Credentials: e.Credentials(name, e.Port, w.password), Image: e.Image(want.Features)})
		_, _ = w.bus.Record(ctx, d, b.Epoch, want.Engine, events.Entry{
			ID: "id-" + name + "-" + b.Epoch, Name: name, Start: "2026-01-02T03:04:05Z", Epoch: b.Epoch, Born: b.Born,
			Features: want.Features, Payload: payload,
		}, events.Created, "", asked)
	}
	_, _ = w.bus.Settle(ctx, d, b.Epoch, nil, asked)
}

// watchedStore is the store in memory, which can be taken away, and counts what it is asked.
type watchedStore struct {
	state.Store

	down  atomic.Bool
	asked atomic.Int64
}

// look counts a call, and says whether the store is away.
func (w *watchedStore) look() error {
	w.asked.Add(1)
	if w.down.Load() {
		return fmt.Errorf("dial tcp: connection refused: %w", state.ErrUnavailable)
	}
	return nil
}

func (w *watchedStore) AgentByToken(ctx context.Context, sum []byte) (state.Agent, error) {
	if err := w.look(); err != nil {
		return state.Agent{}, err
	}
	return w.Store.AgentByToken(ctx, sum)
}

func (w *watchedStore) Agents(ctx context.Context) ([]state.Agent, error) {
	if err := w.look(); err != nil {
		return nil, err
	}
	return w.Store.Agents(ctx)
}

func (w *watchedStore) CreateAgent(ctx context.Context, slug, role string, sum []byte) (state.Agent, error) {
	if err := w.look(); err != nil {
		return state.Agent{}, err
	}
	return w.Store.CreateAgent(ctx, slug, role, sum)
}

func (w *watchedStore) SetToken(ctx context.Context, slug string, sum []byte) (state.Agent, error) {
	if err := w.look(); err != nil {
		return state.Agent{}, err
	}
	return w.Store.SetToken(ctx, slug, sum)
}

func (w *watchedStore) RevokeAgent(ctx context.Context, slug string) error {
	if err := w.look(); err != nil {
		return err
	}
	return w.Store.RevokeAgent(ctx, slug)
}

func (w *watchedStore) Projects(ctx context.Context) ([]state.Project, error) {
	if err := w.look(); err != nil {
		return nil, err
	}
	return w.Store.Projects(ctx)
}

func (w *watchedStore) Project(ctx context.Context, slug string) (state.Project, error) {
	if err := w.look(); err != nil {
		return state.Project{}, err
	}
	return w.Store.Project(ctx, slug)
}

func (w *watchedStore) PutProject(ctx context.Context, p state.Project) (state.Project, bool, error) {
	if err := w.look(); err != nil {
		return state.Project{}, false, err
	}
	return w.Store.PutProject(ctx, p)
}

func (w *watchedStore) PatchProject(ctx context.Context, slug string, p state.ProjectPatch) (state.Project, error) {
	if err := w.look(); err != nil {
		return state.Project{}, err
	}
	return w.Store.PatchProject(ctx, slug, p)
}

func (w *watchedStore) DeleteProject(ctx context.Context, slug string) error {
	if err := w.look(); err != nil {
		return err
	}
	return w.Store.DeleteProject(ctx, slug)
}

func (w *watchedStore) StartWork(ctx context.Context, e state.Engagement, out state.Outgoing) error {
	if err := w.look(); err != nil {
		return err
	}
	return w.Store.StartWork(ctx, e, out)
}

func (w *watchedStore) EndWork(ctx context.Context, agent, taskID string, out state.Outgoing) (state.Engagement, error) {
	if err := w.look(); err != nil {
		return state.Engagement{}, err
	}
	return w.Store.EndWork(ctx, agent, taskID, out)
}

func (w *watchedStore) Engagement(ctx context.Context, agent string) (state.Engagement, error) {
	if err := w.look(); err != nil {
		return state.Engagement{}, err
	}
	return w.Store.Engagement(ctx, agent)
}

func (w *watchedStore) Flag(ctx context.Context, name string) (state.Flag, error) {
	if err := w.look(); err != nil {
		return state.Flag{}, err
	}
	return w.Store.Flag(ctx, name)
}

func (w *watchedStore) SetFlag(ctx context.Context, name string, value *bool) (state.Flag, error) {
	if err := w.look(); err != nil {
		return state.Flag{}, err
	}
	return w.Store.SetFlag(ctx, name, value)
}

func (w *watchedStore) Requests(ctx context.Context, f state.HistoryFilter) ([]state.Request, error) {
	if err := w.look(); err != nil {
		return nil, err
	}
	return w.Store.Requests(ctx, f)
}

func (w *watchedStore) Ping(ctx context.Context) error {
	if err := w.look(); err != nil {
		return err
	}
	return w.Store.Ping(ctx)
}
