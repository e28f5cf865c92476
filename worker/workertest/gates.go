package workertest

import (
	"context"
	"time"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/state"
	"github.com/roboco/sandboxd/worker"
)

// Runtime is the container engine as this process reaches it.
func (p *Process) Runtime(s *Sim) worker.Runtime { return &gatedRuntime{p: p, sim: s} }

// Wire reaches simulated servers through the process's gate.
func (p *Process) Wire(s *Sim) Wire { return &gatedRuntime{p: p, sim: s} }

// Store is the durable store as this process reaches it.
func (p *Process) Store(s worker.Store) worker.Store { return &gatedStore{p: p, store: s} }

type gatedRuntime struct {
	p   *Process
	sim *Sim
}

func (g *gatedRuntime) call(f func() error) error {
	_, err := through(g.p, engines.ErrUnavailable, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

func asked[T any](g *gatedRuntime, f func() (T, error)) (T, error) {
	return through(g.p, engines.ErrUnavailable, f)
}

func (g *gatedRuntime) Query(ctx context.Context, q Query) error {
	return g.call(func() error { return g.sim.Query(ctx, q) })
}

func (g *gatedRuntime) Create(ctx context.Context, l engines.Launch) (string, error) {
	return asked(g, func() (string, error) { return g.sim.Create(ctx, l) })
}

func (g *gatedRuntime) Start(ctx context.Context, id string) error {
	return g.call(func() error { return g.sim.Start(ctx, id) })
}

func (g *gatedRuntime) Rename(ctx context.Context, id, name string) error {
	return g.call(func() error { return g.sim.Rename(ctx, id, name) })
}

func (g *gatedRuntime) Inspect(ctx context.Context, idOrName string) (engines.Container, error) {
	return asked(g, func() (engines.Container, error) { return g.sim.Inspect(ctx, idOrName) })
}

func (g *gatedRuntime) List(ctx context.Context, labels map[string]string) ([]engines.Container, error) {
	return asked(g, func() ([]engines.Container, error) { return g.sim.List(ctx, labels) })
}

func (g *gatedRuntime) ListNamed(ctx context.Context, prefix string) ([]engines.Container, error) {
	return asked(g, func() ([]engines.Container, error) { return g.sim.ListNamed(ctx, prefix) })
}

func (g *gatedRuntime) Logs(ctx context.Context, id string, lines int) (string, error) {
	return asked(g, func() (string, error) { return g.sim.Logs(ctx, id, lines) })
}

func (g *gatedRuntime) Remove(ctx context.Context, id string, grace time.Duration) error {
	return g.call(func() error { return g.sim.Remove(ctx, id, grace) })
}

func (g *gatedRuntime) WaitExit(ctx context.Context, id string) (int, error) {
	ctx, cancel := g.p.bound(ctx)
	defer cancel()
	return asked(g, func() (int, error) { return g.sim.WaitExit(ctx, id) })
}

func (g *gatedRuntime) Events(ctx context.Context, connected func(), found func(engines.Event)) error {
	ctx, cancel := g.p.bound(ctx)
	defer cancel()
	return g.call(func() error {
		return g.sim.Events(ctx, connected, func(d engines.Event) {
			if g.p.pass() == nil {
				found(d)
			}
		})
	})
}

func (g *gatedRuntime) EnsureImage(ctx context.Context, image string, progress func(engines.PullProgress)) error {
	ctx, cancel := g.p.bound(ctx)
	defer cancel()
	return g.call(func() error { return g.sim.EnsureImage(ctx, image, progress) })
}

func (g *gatedRuntime) ImageID(ctx context.Context, image string) (string, error) {
	return asked(g, func() (string, error) { return g.sim.ImageID(ctx, image) })
}

func (g *gatedRuntime) Derive(ctx context.Context, d engines.Derivation) error {
	ctx, cancel := g.p.bound(ctx)
	defer cancel()
	return g.call(func() error { return g.sim.Derive(ctx, d) })
}

func (g *gatedRuntime) DerivedImages(ctx context.Context) ([]engines.Image, error) {
	return asked(g, func() ([]engines.Image, error) { return g.sim.DerivedImages(ctx) })
}

func (g *gatedRuntime) RemoveDerived(ctx context.Context, id string) error {
	return g.call(func() error { return g.sim.RemoveDerived(ctx, id) })
}

func (g *gatedRuntime) EnsureNetwork(ctx context.Context, name string) error {
	return g.call(func() error { return g.sim.EnsureNetwork(ctx, name) })
}

func (g *gatedRuntime) HostID(ctx context.Context) (string, error) {
	return asked(g, func() (string, error) { return g.sim.HostID(ctx) })
}

func (g *gatedRuntime) Capacity(ctx context.Context) (engines.Capacity, error) {
	return asked(g, func() (engines.Capacity, error) { return g.sim.Capacity(ctx) })
}

func (g *gatedRuntime) Ping(ctx context.Context) error {
	return g.call(func() error { return g.sim.Ping(ctx) })
}

// bound ends long waits when the process dies.
func (p *Process) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(p.life, cancel)
	return ctx, func() { stop(); cancel() }
}

type gatedStore struct {
	p     *Process
	store worker.Store
}

func (g *gatedStore) call(f func() error) error {
	_, err := through(g.p, state.ErrUnavailable, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

func read[T any](g *gatedStore, f func() (T, error)) (T, error) {
	return through(g.p, state.ErrUnavailable, f)
}

func (g *gatedStore) StartWork(ctx context.Context, e state.Engagement, out state.Outgoing) error {
	return g.call(func() error { return g.store.StartWork(ctx, e, out) })
}

func (g *gatedStore) EndWork(ctx context.Context, agent, task string, out state.Outgoing) (state.Engagement, error) {
	return read(g, func() (state.Engagement, error) { return g.store.EndWork(ctx, agent, task, out) })
}

func (g *gatedStore) Engagement(ctx context.Context, agent string) (state.Engagement, error) {
	return read(g, func() (state.Engagement, error) { return g.store.Engagement(ctx, agent) })
}

func (g *gatedStore) SetOwned(ctx context.Context, agent, task, project string) error {
	return g.call(func() error { return g.store.SetOwned(ctx, agent, task, project) })
}

func (g *gatedStore) OwedBefore(ctx context.Context, eventID string) ([]state.Outgoing, error) {
	return read(g, func() ([]state.Outgoing, error) { return g.store.OwedBefore(ctx, eventID) })
}

func (g *gatedStore) Published(ctx context.Context, eventID string) error {
	return g.call(func() error { return g.store.Published(ctx, eventID) })
}

func (g *gatedStore) Unpublished(ctx context.Context, age time.Duration, limit int) ([]state.Outgoing, error) {
	return read(g, func() ([]state.Outgoing, error) { return g.store.Unpublished(ctx, age, limit) })
}

func (g *gatedStore) Flag(ctx context.Context, name string) (state.Flag, error) {
	return read(g, func() (state.Flag, error) { return g.store.Flag(ctx, name) })
}

func (g *gatedStore) SetFlag(ctx context.Context, name string, value *bool) (state.Flag, error) {
	return read(g, func() (state.Flag, error) { return g.store.SetFlag(ctx, name, value) })
}

func (g *gatedStore) RecordRequests(ctx context.Context, rows []state.Request) error {
	return g.call(func() error { return g.store.RecordRequests(ctx, rows) })
}

func (g *gatedStore) Requests(ctx context.Context, f state.HistoryFilter) ([]state.Request, error) {
	return read(g, func() ([]state.Request, error) { return g.store.Requests(ctx, f) })
}

func (g *gatedStore) RecordClaim(ctx context.Context, c state.Claim) error {
	return g.call(func() error { return g.store.RecordClaim(ctx, c) })
}

func (g *gatedStore) Claims(ctx context.Context, ids []string) (map[string]state.Claim, error) {
	return read(g, func() (map[string]state.Claim, error) { return g.store.Claims(ctx, ids) })
}

func (g *gatedStore) PruneRequests(ctx context.Context, before time.Time) (int64, error) {
	return read(g, func() (int64, error) { return g.store.PruneRequests(ctx, before) })
}

func (g *gatedStore) Project(ctx context.Context, slug string) (state.Project, error) {
	return read(g, func() (state.Project, error) { return g.store.Project(ctx, slug) })
}

func (g *gatedStore) Projects(ctx context.Context) ([]state.Project, error) {
	return read(g, func() ([]state.Project, error) { return g.store.Projects(ctx) })
}
