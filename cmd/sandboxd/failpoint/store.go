package failpoint

import (
	"context"
	"time"

	"github.com/roboco/sandboxd/state"
)

// Store gives every call of the durable store its two points: state.startwork.before, state.startwork.after.
func (p *Points) Store(s state.Store) state.Store { return store{p, s} }

type store struct {
	p *Points
	s state.Store
}

func (d store) Projects(ctx context.Context) ([]state.Project, error) {
	return through(d.p, "state.projects", func() ([]state.Project, error) { return d.s.Projects(ctx) })
}

func (d store) Project(ctx context.Context, slug string) (state.Project, error) {
	return through(d.p, "state.project", func() (state.Project, error) { return d.s.Project(ctx, slug) })
}

func (d store) PatchProject(ctx context.Context, slug string, patch state.ProjectPatch) (state.Project, error) {
	return through(d.p, "state.patchproject", func() (state.Project, error) { return d.s.PatchProject(ctx, slug, patch) })
}

func (d store) DeleteProject(ctx context.Context, slug string) error {
	return d.p.around("state.deleteproject", func() error { return d.s.DeleteProject(ctx, slug) })
}

func (d store) Agents(ctx context.Context) ([]state.Agent, error) {
	return through(d.p, "state.agents", func() ([]state.Agent, error) { return d.s.Agents(ctx) })
}

func (d store) Agent(ctx context.Context, slug string) (state.Agent, error) {
	return through(d.p, "state.agent", func() (state.Agent, error) { return d.s.Agent(ctx, slug) })
}

func (d store) CreateAgent(ctx context.Context, slug, role string, tokenHash []byte) (state.Agent, error) {
	return through(d.p, "state.createagent", func() (state.Agent, error) { return d.s.CreateAgent(ctx, slug, role, tokenHash) })
}

func (d store) SetToken(ctx context.Context, slug string, tokenHash []byte) (state.Agent, error) {
	return through(d.p, "state.settoken", func() (state.Agent, error) { return d.s.SetToken(ctx, slug, tokenHash) })
}

func (d store) RevokeAgent(ctx context.Context, slug string) error {
	return d.p.around("state.revokeagent", func() error { return d.s.RevokeAgent(ctx, slug) })
}

func (d store) AgentByToken(ctx context.Context, tokenHash []byte) (state.Agent, error) {
	return through(d.p, "state.agentbytoken", func() (state.Agent, error) { return d.s.AgentByToken(ctx, tokenHash) })
}

func (d store) StartWork(ctx context.Context, e state.Engagement, out state.Outgoing) error {
	return d.p.around("state.startwork", func() error { return d.s.StartWork(ctx, e, out) })
}

func (d store) EndWork(ctx context.Context, agent, task string, out state.Outgoing) (state.Engagement, error) {
	return through(d.p, "state.endwork", func() (state.Engagement, error) { return d.s.EndWork(ctx, agent, task, out) })
}

func (d store) Engagement(ctx context.Context, agent string) (state.Engagement, error) {
	return through(d.p, "state.engagement", func() (state.Engagement, error) { return d.s.Engagement(ctx, agent) })
}

func (d store) SetOwned(ctx context.Context, agent, task, project string) error {
	return d.p.around("state.setowned", func() error { return d.s.SetOwned(ctx, agent, task, project) })
}

func (d store) OwedBefore(ctx context.Context, eventID string) ([]state.Outgoing, error) {
	return through(d.p, "state.owedbefore", func() ([]state.Outgoing, error) { return d.s.OwedBefore(ctx, eventID) })
}

func (d store) Published(ctx context.Context, eventID string) error {
	return d.p.around("state.published", func() error { return d.s.Published(ctx, eventID) })
}

func (d store) Unpublished(ctx context.Context, age time.Duration, limit int) ([]state.Outgoing, error) {
	return through(d.p, "state.unpublished", func() ([]state.Outgoing, error) { return d.s.Unpublished(ctx, age, limit) })
}

func (d store) Flag(ctx context.Context, name string) (state.Flag, error) {
	return through(d.p, "state.flag", func() (state.Flag, error) { return d.s.Flag(ctx, name) })
}

func (d store) SetFlag(ctx context.Context, name string, value *bool) (state.Flag, error) {
	return through(d.p, "state.setflag", func() (state.Flag, error) { return d.s.SetFlag(ctx, name, value) })
}

func (d store) RecordRequests(ctx context.Context, rows []state.Request) error {
	return d.p.around("state.recordrequests", func() error { return d.s.RecordRequests(ctx, rows) })
}

func (d store) Requests(ctx context.Context, f state.HistoryFilter) ([]state.Request, error) {
	return through(d.p, "state.requests", func() ([]state.Request, error) { return d.s.Requests(ctx, f) })
}

func (d store) RecordClaim(ctx context.Context, c state.Claim) error {
	return d.p.around("state.recordclaim", func() error { return d.s.RecordClaim(ctx, c) })
}

func (d store) Claims(ctx context.Context, containerIDs []string) (map[string]state.Claim, error) {
	return through(d.p, "state.claims", func() (map[string]state.Claim, error) { return d.s.Claims(ctx, containerIDs) })
}

func (d store) PruneRequests(ctx context.Context, before time.Time) (int64, error) {
	return through(d.p, "state.prunerequests", func() (int64, error) { return d.s.PruneRequests(ctx, before) })
}

func (d store) Ping(ctx context.Context) error {
	return d.p.around("state.ping", func() error { return d.s.Ping(ctx) })
}

func (d store) PutProject(ctx context.Context, x state.Project) (stored state.Project, created bool, err error) {
	err = d.p.around("state.putproject", func() error {
		stored, created, err = d.s.PutProject(ctx, x)
		return err
	})
	return stored, created, err
}

// Close has no points: nothing that lasts depends on it.
func (d store) Close() { d.s.Close() }
