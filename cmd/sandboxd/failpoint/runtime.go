package failpoint

import (
	"context"
	"time"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/worker"
)

// Runtime gives every call of a container engine its two points: engine.create.before, engine.create.after. What the
// engine calls back has points too: engine.events.found, engine.ensureimage.progress.
func (p *Points) Runtime(r worker.Runtime) worker.Runtime { return runtime{p, r} }

type runtime struct {
	p *Points
	r worker.Runtime
}

func (d runtime) Create(ctx context.Context, l engines.Launch) (string, error) {
	return through(d.p, "engine.create", func() (string, error) { return d.r.Create(ctx, l) })
}

func (d runtime) Start(ctx context.Context, id string) error {
	return d.p.around("engine.start", func() error { return d.r.Start(ctx, id) })
}

func (d runtime) Rename(ctx context.Context, id, name string) error {
	return d.p.around("engine.rename", func() error { return d.r.Rename(ctx, id, name) })
}

func (d runtime) Inspect(ctx context.Context, idOrName string) (engines.Container, error) {
	return through(d.p, "engine.inspect", func() (engines.Container, error) { return d.r.Inspect(ctx, idOrName) })
}

func (d runtime) List(ctx context.Context, labels map[string]string) ([]engines.Container, error) {
	return through(d.p, "engine.list", func() ([]engines.Container, error) { return d.r.List(ctx, labels) })
}

func (d runtime) ListNamed(ctx context.Context, prefix string) ([]engines.Container, error) {
	return through(d.p, "engine.listnamed", func() ([]engines.Container, error) { return d.r.ListNamed(ctx, prefix) })
}

func (d runtime) Logs(ctx context.Context, id string, lines int) (string, error) {
	return through(d.p, "engine.logs", func() (string, error) { return d.r.Logs(ctx, id, lines) })
}

func (d runtime) Remove(ctx context.Context, id string, grace time.Duration) error {
	return d.p.around("engine.remove", func() error { return d.r.Remove(ctx, id, grace) })
}

func (d runtime) WaitExit(ctx context.Context, id string) (int, error) {
	return through(d.p, "engine.waitexit", func() (int, error) { return d.r.WaitExit(ctx, id) })
}

func (d runtime) Events(ctx context.Context, connected func(), found func(engines.Event)) error {
	return d.p.around("engine.events", func() error {
		return d.r.Events(ctx, func() {
			d.p.Pass("engine.events.connected")
			connected()
		}, func(x engines.Event) {
			if x.Action == engines.Died { // the others change nothing that lasts
				d.p.Pass("engine.events.found")
			}
			found(x)
		})
	})
}

func (d runtime) EnsureImage(ctx context.Context, image string, progress func(engines.PullProgress)) error {
	return d.p.around("engine.ensureimage", func() error {
		return d.r.EnsureImage(ctx, image, func(x engines.PullProgress) {
			d.p.Pass("engine.ensureimage.progress")
			if progress != nil {
				progress(x)
			}
		})
	})
}

func (d runtime) ImageID(ctx context.Context, image string) (string, error) {
	return through(d.p, "engine.imageid", func() (string, error) { return d.r.ImageID(ctx, image) })
}

func (d runtime) Derive(ctx context.Context, x engines.Derivation) error {
	return d.p.around("engine.derive", func() error { return d.r.Derive(ctx, x) })
}

func (d runtime) DerivedImages(ctx context.Context) ([]engines.Image, error) {
	return through(d.p, "engine.derivedimages", func() ([]engines.Image, error) { return d.r.DerivedImages(ctx) })
}

func (d runtime) RemoveDerived(ctx context.Context, id string) error {
	return d.p.around("engine.removederived", func() error { return d.r.RemoveDerived(ctx, id) })
}

func (d runtime) EnsureNetwork(ctx context.Context, name string) error {
	return d.p.around("engine.ensurenetwork", func() error { return d.r.EnsureNetwork(ctx, name) })
}

func (d runtime) HostID(ctx context.Context) (string, error) {
	return through(d.p, "engine.hostid", func() (string, error) { return d.r.HostID(ctx) })
}

func (d runtime) Ping(ctx context.Context) error {
	return d.p.around("engine.ping", func() error { return d.r.Ping(ctx) })
}

func (d runtime) Capacity(ctx context.Context) (engines.Capacity, error) {
	return through(d.p, "engine.capacity", func() (engines.Capacity, error) { return d.r.Capacity(ctx) })
}

// Engines gives every query to the servers in the containers its two points: server.activate.before.
func (p *Points) Engines(r engines.Registry) engines.Registry {
	out := make(engines.Registry, len(r))
	for i, e := range r {
		up, activate, verify, probe := e.Up, e.Activate, e.Verify, e.Probe
		e.Up = func(ctx context.Context, a engines.Access) error {
			return p.around("server.up", func() error { return up(ctx, a) })
		}
		e.Activate = func(ctx context.Context, a engines.Access, features []string) error {
			return p.around("server.activate", func() error { return activate(ctx, a, features) })
		}
		e.Verify = func(ctx context.Context, a engines.Access, features []string) error {
			return p.around("server.verify", func() error { return verify(ctx, a, features) })
		}
		e.Probe = func(ctx context.Context, a engines.Access) error {
			return p.around("server.probe", func() error { return probe(ctx, a) })
		}
		out[i] = e
	}
	return out
}
