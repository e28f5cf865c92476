package workertest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/roboco/sandboxd/engines"
)

// Operations, as faults name them.
const (
	OpCreate  = "create"
	OpStart   = "start"
	OpRename  = "rename"
	OpInspect = "inspect"
	OpList    = "list"
	OpRemove  = "remove"
	OpPull    = "pull"
	OpDerive  = "derive"
	OpQuery   = "query" // an engine's wire: readiness, activation, verification
	OpOther   = "other"
)

// Create makes a container that does not run.
func (s *Sim) Create(ctx context.Context, l engines.Launch) (string, error) {
	return do(ctx, s, OpCreate, func() (string, error) {
		if s.names[l.Name] != "" {
			return "", fmt.Errorf("create container %s: %w", l.Name, engines.ErrNameTaken)
		}
		if !s.hasDerived(l.Image) {
			return "", fmt.Errorf("create container %s: image %s: %w", l.Name, l.Image, engines.ErrNotFound)
		}
		b := s.put(l.Name, cmp.Or(l.Labels[engines.LabelImage], l.Image), l.Labels, l.Env)
		b.memory, b.from = l.Memory, l.Image
		return b.ID, nil
	})
}

// Start begins a life; a container that runs is left alone.
func (s *Sim) Start(ctx context.Context, id string) error {
	return s.on(ctx, OpStart, id, func(b *box) error {
		if !b.Running {
			s.run(b)
		}
		return nil
	})
}

// Rename gives a container another name.
func (s *Sim) Rename(ctx context.Context, id, name string) error {
	return s.on(ctx, OpRename, id, func(b *box) error {
		if holder := s.names[name]; holder != "" && holder != id {
			return fmt.Errorf("rename container %s to %s: %w", b.Name, name, engines.ErrNameTaken)
		}
		delete(s.names, b.Name)
		b.Name, s.names[name] = name, id
		s.tell(b, engines.Renamed)
		return nil
	})
}

// Inspect looks at one container, by full ID or name.
func (s *Sim) Inspect(ctx context.Context, idOrName string) (engines.Container, error) {
	return do(ctx, s, OpInspect, func() (engines.Container, error) {
		b := s.boxes[idOrName]
		if b == nil {
			b = s.boxes[s.names[idOrName]]
		}
		if b == nil {
			return engines.Container{}, fmt.Errorf("inspect container %s: %w", idOrName, engines.ErrNotFound)
		}
		if b.Running {
			s.truth.looked(b.ID)
		}
		return b.full(), nil
	})
}

// List gives the containers with these labels, oldest first.
func (s *Sim) List(ctx context.Context, labels map[string]string) ([]engines.Container, error) {
	return s.listed(ctx, func(b *box) bool {
		for k, v := range labels {
			if got, ok := b.Labels[k]; !ok || got != v {
				return false
			}
		}
		return true
	})
}

// ListNamed gives the containers whose name begins with prefix, oldest first.
func (s *Sim) ListNamed(ctx context.Context, prefix string) ([]engines.Container, error) {
	return s.listed(ctx, func(b *box) bool { return strings.HasPrefix(b.Name, prefix) })
}

func (s *Sim) listed(ctx context.Context, want func(*box) bool) ([]engines.Container, error) {
	return do(ctx, s, OpList, func() ([]engines.Container, error) {
		var out []engines.Container
		for _, b := range s.inOrder() {
			if want(b) {
				out = append(out, b.brief())
			}
		}
		return out, nil
	})
}

// inOrder gives the containers by their creation. s.mu is held.
func (s *Sim) inOrder() []*box {
	all := make([]*box, 0, len(s.boxes))
	for _, b := range s.boxes {
		all = append(all, b)
	}
	slices.SortFunc(all, func(a, b *box) int { return int(a.order) - int(b.order) })
	return all
}

// Logs gives one line that names the container.
func (s *Sim) Logs(ctx context.Context, id string, _ int) (string, error) {
	return do(ctx, s, OpOther, func() (string, error) {
		b := s.boxes[id]
		if b == nil {
			return "", fmt.Errorf("logs of container %s: %w", id, engines.ErrNotFound)
		}
		return "simulated log of " + b.Name, nil
	})
}

// Remove takes a container of ours away.
func (s *Sim) Remove(ctx context.Context, id string, grace time.Duration) error {
	_ = grace // a simulated server stops at its signal
	_, err := do(ctx, s, OpRemove, func() (struct{}, error) {
		b := s.boxes[id]
		if b == nil { // a real one takes a name too
			b = s.boxes[s.names[id]]
		}
		if b == nil {
			return struct{}{}, nil
		}
		if b.Labels[labelOurs] == "" {
			return struct{}{}, fmt.Errorf("remove container %s: %w", b.Name, engines.ErrForeign)
		}
		s.drop(b)
		s.truth.removed(b)
		return struct{}{}, nil
	})
	return err
}

// EnsureNetwork notes the network's name.
func (s *Sim) EnsureNetwork(ctx context.Context, name string) error {
	_, err := do(ctx, s, OpOther, func() (struct{}, error) {
		s.networks[name] = true
		return struct{}{}, nil
	})
	return err
}

// HostID is the same for every Sim.
func (s *Sim) HostID(ctx context.Context) (string, error) {
	return do(ctx, s, OpOther, func() (string, error) { return "simulated-host", nil })
}

// Capacity tells the configured memory, and the limits of what was made and not removed.
func (s *Sim) Capacity(ctx context.Context) (engines.Capacity, error) {
	return do(ctx, s, OpOther, func() (engines.Capacity, error) {
		c := engines.Capacity{Memory: s.cfg.Memory}
		for _, b := range s.boxes {
			if b.Running || b.StartedAt == "" {
				c.Committed += b.memory
			}
		}
		return c, nil
	})
}

// Ping fails while the engine is down.
func (s *Sim) Ping(ctx context.Context) error {
	_, err := do(ctx, s, OpOther, func() (struct{}, error) { return struct{}{}, nil })
	return err
}

// on runs an operation on one container.
func (s *Sim) on(ctx context.Context, op, id string, effect func(*box) error) error {
	_, err := do(ctx, s, op, func() (struct{}, error) {
		b := s.boxes[id]
		if b == nil {
			return struct{}{}, fmt.Errorf("%s container %s: %w", op, id, engines.ErrNotFound)
		}
		err := effect(b)
		s.truth.changed(b)
		return struct{}{}, err
	})
	return err
}
