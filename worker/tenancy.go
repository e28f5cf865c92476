package worker

import (
	"context"
	"errors"
	"fmt"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/state"
)

// sight is what a look at an agent showed: the hash first, the container engine afterwards. A stop or a begin that
// comes in between is then noticed by the scripts, which compare the hash's owner with hashOwner.
type sight struct {
	tenancy   events.Tenancy // Task and Project empty: no engagement; Owner empty: its container is gone
	hashOwner string
	owedOwned bool // the hash does not yet know that it is
}

// look reads who works on what, and who lives. Errors: of the bus (leave the entry), state.ErrUnavailable,
// engines.ErrUnavailable (unknown: never taken for gone, nor for a lease).
func (w *Worker) look(ctx context.Context, slug string) (sight, error) {
	hash, err := w.cfg.Bus.Agent(ctx, slug)
	if err != nil {
		return sight{}, fmt.Errorf("read agent %s: %w", slug, err)
	}
	return w.lookFrom(ctx, slug, hash)
}

// lookFrom goes on from the hash, which has been read.
func (w *Worker) lookFrom(ctx context.Context, slug string, hash events.AgentState) (sight, error) {
	task, project, owned, err := w.engagement(ctx, slug, hash)
	if err != nil {
		return sight{}, err
	}
	alive, err := w.aliveOwner(ctx, slug)
	if err != nil {
		return sight{}, err
	}
	return sight{
		tenancy:   events.Tenancy{Task: task, Project: project, Owner: w.presentOwner(alive, owned)},
		hashOwner: hash.Owner,
		owedOwned: alive != "" && !owned,
	}, nil
}

// engagement takes the engagement from the hash, or, where the hash has lost it, from the durable store.
func (w *Worker) engagement(ctx context.Context, slug string, hash events.AgentState) (task, project string, owned bool, err error) {
	if hash.Known {
		if hash.WorkEnded {
			return "", "", false, nil
		}
		return hash.Task, hash.Project, hash.Owned, nil
	}
	e, err := w.cfg.Store.Engagement(ctx, slug)
	switch {
	case errors.Is(err, state.ErrNotFound):
		return "", "", hash.Owned, nil
	case err != nil:
		return "", "", false, fmt.Errorf("read the engagement of %s: %w", slug, err)
	case e.Ended:
		return "", "", false, nil
	}
	return e.Task, e.Project, e.Owned || hash.Owned, nil
}

// aliveOwner is the owner string of the agent's container, or empty when none runs. It is looked at after this call, never
// before: its callers have read the hash first. One that is paused lives.
func (w *Worker) aliveOwner(ctx context.Context, slug string) (string, error) {
	if w.cfg.ForceLease {
		return "", nil
	}
	c, err := w.lives.fresh(ctx, agentName(slug))
	switch {
	case errors.Is(err, engines.ErrNotFound):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("look at container %s: %w", agentName(slug), err)
	case !c.Running || w.isSandbox(c):
		return "", nil
	}
	return c.Owner(), nil
}

// isSandbox tells a sandbox container from an agent's, whatever its name.
func (*Worker) isSandbox(c engines.Container) bool { return c.Labels[labelSandbox] != "" }

// presentOwner is who owns a sandbox of the present engagement: the agent's live container, a lease where none ever
// was, or nobody: the container is gone.
func (w *Worker) presentOwner(alive string, owned bool) string {
	if w.cfg.ForceLease || alive == "" && !owned {
		return events.OwnerLease
	}
	return alive
}

// present is what revoke and adopt want to know of an agent outside of Redis.
func (w *Worker) present(ctx context.Context, slug string) (events.Present, error) {
	s, err := w.look(ctx, slug)
	if err != nil {
		return events.Present{}, err
	}
	return events.Present{Task: s.tenancy.Task, Project: s.tenancy.Project, Owner: s.tenancy.Owner}, nil
}
