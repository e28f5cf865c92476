package state

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// memory keeps everything under one lock: a call is a transaction.
type memory struct {
	catalog Catalog

	mu          sync.Mutex
	closed      bool
	projects    map[string]Project
	agents      map[string]Agent
	tokens      map[[hashLen]byte]string // sum -> slug, of agents that are not revoked
	engagements map[string][]Engagement  // by agent, oldest first
	owed        []owedEvent              // oldest first, published ones too
	events      map[string]int           // event ID -> index in owed
	flags       map[string]Flag
	history     []Request        // by ID, ascending
	claims      map[string]Claim // by container ID
}

// NewMemory is a store with the same behaviour that forgets everything when the process ends.
func NewMemory(catalog Catalog) Store {
	return &memory{
		catalog:     catalog.clone(),
		projects:    map[string]Project{},
		agents:      map[string]Agent{},
		tokens:      map[[hashLen]byte]string{},
		engagements: map[string][]Engagement{},
		events:      map[string]int{},
		flags:       map[string]Flag{},
		claims:      map[string]Claim{},
	}
}

// begin takes the lock, or says why the call cannot be served. The caller unlocks.
func (m *memory) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return gaveUp(err)
	}
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return fmt.Errorf("%w: it is closed", ErrUnavailable)
	}
	return nil
}

// gaveUp is the error of a call whose context ended: out of time is the store not answering, a cancelled call is not.
func gaveUp(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}

func (*memory) now() time.Time { return instant(time.Now()) }

// Ping implements Store.
func (m *memory) Ping(ctx context.Context) error {
	if err := m.begin(ctx); err != nil {
		return err
	}
	m.mu.Unlock()
	return nil
}

// Close implements Store.
func (m *memory) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
}

// Projects implements Projects.
func (m *memory) Projects(ctx context.Context) ([]Project, error) {
	if err := m.begin(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	out := make([]Project, 0, len(m.projects))
	for _, p := range m.projects {
		out = append(out, p.copied())
	}
	slices.SortFunc(out, func(a, b Project) int { return cmp.Compare(a.Slug, b.Slug) })
	return out, nil
}

// Project implements Projects.
func (m *memory) Project(ctx context.Context, slug string) (Project, error) {
	if err := m.begin(ctx); err != nil {
		return Project{}, err
	}
	defer m.mu.Unlock()
	p, ok := m.projects[slug]
	if !ok {
		return Project{}, noProject(slug)
	}
	return p.copied(), nil
}

// PutProject implements Projects.
func (m *memory) PutProject(ctx context.Context, p Project) (Project, bool, error) {
	p, err := m.catalog.project(p)
	if err != nil {
		return Project{}, false, err
	}
	if err := m.begin(ctx); err != nil {
		return Project{}, false, err
	}
	defer m.mu.Unlock()
	old, known := m.projects[p.Slug]
	p.UpdatedAt = m.now()
	p.CreatedAt = p.UpdatedAt
	if known {
		p.CreatedAt = old.CreatedAt
	}
	m.projects[p.Slug] = p
	return p.copied(), !known, nil
}

// PatchProject implements Projects.
func (m *memory) PatchProject(ctx context.Context, slug string, patch ProjectPatch) (Project, error) {
	patch, err := m.catalog.patch(slug, patch)
	if err != nil {
		return Project{}, err
	}
	if err := m.begin(ctx); err != nil {
		return Project{}, err
	}
	defer m.mu.Unlock()
	p, ok := m.projects[slug]
	if !ok {
		return Project{}, noProject(slug)
	}
	if patch.Name != nil {
		p.Name = *patch.Name
	}
	if patch.SetServices {
		p.Services = patch.Services
	}
	if patch.SetExtensions {
		p.Extensions = patch.Extensions
	}
	p.UpdatedAt = m.now()
	m.projects[slug] = p
	return p.copied(), nil
}

// DeleteProject implements Projects.
func (m *memory) DeleteProject(ctx context.Context, slug string) error {
	if err := m.begin(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	if _, ok := m.projects[slug]; !ok {
		return noProject(slug)
	}
	delete(m.projects, slug)
	return nil
}

// Agents implements Agents.
func (m *memory) Agents(ctx context.Context) ([]Agent, error) {
	if err := m.begin(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	out := slices.Collect(maps.Values(m.agents))
	slices.SortFunc(out, func(a, b Agent) int { return cmp.Compare(a.Slug, b.Slug) })
	return out, nil
}

// Agent implements Agents.
func (m *memory) Agent(ctx context.Context, slug string) (Agent, error) {
	if err := m.begin(ctx); err != nil {
		return Agent{}, err
	}
	defer m.mu.Unlock()
	a, ok := m.agents[slug]
	if !ok {
		return Agent{}, noAgent(slug)
	}
	return a, nil
}

// CreateAgent implements Agents.
func (m *memory) CreateAgent(ctx context.Context, slug, role string, tokenHash []byte) (Agent, error) {
	if err := checkAgent(slug, role, tokenHash); err != nil {
		return Agent{}, err
	}
	if err := m.begin(ctx); err != nil {
		return Agent{}, err
	}
	defer m.mu.Unlock()
	if _, ok := m.agents[slug]; ok {
		return Agent{}, agentTaken(slug)
	}
	sum := [hashLen]byte(tokenHash)
	if _, ok := m.tokens[sum]; ok {
		return Agent{}, errTokenTaken()
	}
	a := Agent{Slug: slug, Role: role, CreatedAt: m.now()}
	m.agents[slug] = a
	m.tokens[sum] = slug
	return a, nil
}

// SetToken implements Agents.
func (m *memory) SetToken(ctx context.Context, slug string, tokenHash []byte) (Agent, error) {
	if err := checkHash(tokenHash); err != nil {
		return Agent{}, err
	}
	if err := m.begin(ctx); err != nil {
		return Agent{}, err
	}
	defer m.mu.Unlock()
	a, ok := m.agents[slug]
	if !ok {
		return Agent{}, noAgent(slug)
	}
	sum := [hashLen]byte(tokenHash)
	if holder, ok := m.tokens[sum]; ok && holder != slug {
		return Agent{}, errTokenTaken()
	}
	m.dropToken(slug)
	m.tokens[sum] = slug
	a.Revoked = false
	m.agents[slug] = a
	return a, nil
}

// RevokeAgent implements Agents.
func (m *memory) RevokeAgent(ctx context.Context, slug string) error {
	if err := m.begin(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	a, ok := m.agents[slug]
	if !ok {
		return noAgent(slug)
	}
	m.dropToken(slug)
	a.Revoked = true
	m.agents[slug] = a
	return nil
}

// AgentByToken implements Agents.
func (m *memory) AgentByToken(ctx context.Context, tokenHash []byte) (Agent, error) {
	if err := m.begin(ctx); err != nil {
		return Agent{}, err
	}
	defer m.mu.Unlock()
	if len(tokenHash) != hashLen {
		return Agent{}, errNoToken()
	}
	for sum, slug := range m.tokens {
		if subtle.ConstantTimeCompare(sum[:], tokenHash) == 1 {
			return m.agents[slug], nil
		}
	}
	return Agent{}, errNoToken()
}

func (m *memory) dropToken(slug string) {
	maps.DeleteFunc(m.tokens, func(_ [hashLen]byte, holder string) bool { return holder == slug })
}

// copied shares nothing with p.
func (p Project) copied() Project {
	p.Services = slices.Clone(p.Services)
	p.Extensions = cloneLists(p.Extensions)
	return p
}

func checkAgent(slug, role string, tokenHash []byte) error {
	if err := checkSlug("slug", slug); err != nil {
		return err
	}
	if err := checkRole(role); err != nil {
		return err
	}
	return checkHash(tokenHash)
}

func noProject(slug string) error  { return fmt.Errorf("project %s: %w", quote(slug), ErrNotFound) }
func noAgent(slug string) error    { return fmt.Errorf("agent %s: %w", quote(slug), ErrNotFound) }
func agentTaken(slug string) error { return fmt.Errorf("agent %s: %w", quote(slug), ErrTaken) }
func errNoToken() error            { return fmt.Errorf("agent of this token: %w", ErrNotFound) }
