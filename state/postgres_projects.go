package state

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"

	"github.com/jackc/pgx/v5"
)

const projectColumns = "slug, name, services, extensions, created_at, updated_at"

// Projects implements Projects.
func (p *postgres) Projects(ctx context.Context) (out []Project, err error) {
	err = p.call(ctx, "list the projects", func(ctx context.Context) error {
		rows, _ := p.pool.Query(ctx, "SELECT "+projectColumns+" FROM sandboxd.projects ORDER BY slug")
		out, err = pgx.CollectRows(rows, scanProject)
		return err
	})
	return out, err
}

// Project implements Projects.
func (p *postgres) Project(ctx context.Context, slug string) (Project, error) {
	if !ValidSlug(slug) {
		return Project{}, noProject(slug)
	}
	return p.oneProject(ctx, "read a project", slug,
		"SELECT "+projectColumns+" FROM sandboxd.projects WHERE slug = $1", slug)
}

// PutProject implements Projects.
func (p *postgres) PutProject(ctx context.Context, in Project) (stored Project, created bool, err error) {
	in, err = p.catalog.project(in)
	if err != nil {
		return Project{}, false, err
	}
	err = p.call(ctx, "store a project", func(ctx context.Context) error {
		// xmax is 0 in a row that this statement inserted.
		rows, _ := p.pool.Query(ctx, `
			INSERT INTO sandboxd.projects (slug, name, services, extensions, created_at, updated_at)
			VALUES ($1, $2, $3, $4, now(), now())
			ON CONFLICT (slug) DO UPDATE SET name = EXCLUDED.name, services = EXCLUDED.services,
				extensions = EXCLUDED.extensions, updated_at = EXCLUDED.updated_at
			RETURNING (xmax = 0), `+projectColumns, in.Slug, in.Name, in.Services, lists(in.Extensions))
		stored, err = pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (Project, error) {
			return readProject(row, &created)
		})
		return err
	})
	return stored, created, err
}

// PatchProject implements Projects.
func (p *postgres) PatchProject(ctx context.Context, slug string, patch ProjectPatch) (Project, error) {
	patch, err := p.catalog.patch(slug, patch)
	if err != nil {
		return Project{}, err
	}
	if !ValidSlug(slug) {
		return Project{}, noProject(slug)
	}
	return p.oneProject(ctx, "change a project", slug, `
		UPDATE sandboxd.projects SET
			name = COALESCE($2, name),
			services = CASE WHEN $3 THEN $4 ELSE services END,
			extensions = CASE WHEN $5 THEN $6 ELSE extensions END,
			updated_at = now()
		WHERE slug = $1 RETURNING `+projectColumns,
		slug, patch.Name, patch.SetServices, patch.Services, patch.SetExtensions, lists(patch.Extensions))
}

// DeleteProject implements Projects.
func (p *postgres) DeleteProject(ctx context.Context, slug string) error {
	if !ValidSlug(slug) {
		return noProject(slug)
	}
	return p.call(ctx, "delete a project", func(ctx context.Context) error {
		tag, err := p.pool.Exec(ctx, "DELETE FROM sandboxd.projects WHERE slug = $1", slug)
		if err == nil && tag.RowsAffected() == 0 {
			return noProject(slug)
		}
		return err
	})
}

func (p *postgres) oneProject(ctx context.Context, doing, slug, sql string, args ...any) (out Project, err error) {
	err = p.call(ctx, doing, func(ctx context.Context) error {
		rows, _ := p.pool.Query(ctx, sql, args...)
		out, err = pgx.CollectExactlyOneRow(rows, scanProject)
		if errors.Is(err, pgx.ErrNoRows) {
			return noProject(slug)
		}
		return err
	})
	return out, err
}

func scanProject(row pgx.CollectableRow) (Project, error) { return readProject(row) }

// readProject scans the columns of a project, after those that go elsewhere.
func readProject(row pgx.CollectableRow, before ...any) (p Project, err error) {
	err = row.Scan(append(before, &p.Slug, &p.Name, &p.Services, &p.Extensions, &p.CreatedAt, &p.UpdatedAt)...)
	p.CreatedAt, p.UpdatedAt = instant(p.CreatedAt), instant(p.UpdatedAt)
	return p, err
}

// lists is a map as jsonb; nil is NULL.
func lists(m map[string][]string) []byte {
	if m == nil {
		return nil
	}
	b, err := json.Marshal(m)
	if err != nil {
		panic("state: a map of strings is always JSON: " + err.Error())
	}
	return b
}

const agentColumns = "slug, role, token_sum IS NULL, created_at"

// Agents implements Agents.
func (p *postgres) Agents(ctx context.Context) (out []Agent, err error) {
	err = p.call(ctx, "list the agents", func(ctx context.Context) error {
		rows, _ := p.pool.Query(ctx, "SELECT "+agentColumns+" FROM sandboxd.agents ORDER BY slug")
		out, err = pgx.CollectRows(rows, scanAgent)
		return err
	})
	return out, err
}

// CreateAgent implements Agents.
func (p *postgres) CreateAgent(ctx context.Context, slug, role string, tokenHash []byte) (Agent, error) {
	if err := checkAgent(slug, role, tokenHash); err != nil {
		return Agent{}, err
	}
	return p.oneAgent(ctx, "make an agent", slug, `
		INSERT INTO sandboxd.agents (slug, role, token_sum, created_at) VALUES ($1, $2, $3, now())
		RETURNING `+agentColumns, slug, role, tokenHash)
}

// SetToken implements Agents.
func (p *postgres) SetToken(ctx context.Context, slug string, tokenHash []byte) (Agent, error) {
	if err := checkHash(tokenHash); err != nil {
		return Agent{}, err
	}
	if !ValidSlug(slug) {
		return Agent{}, noAgent(slug)
	}
	return p.oneAgent(ctx, "set an agent's token", slug,
		"UPDATE sandboxd.agents SET token_sum = $2 WHERE slug = $1 RETURNING "+agentColumns, slug, tokenHash)
}

// RevokeAgent implements Agents.
func (p *postgres) RevokeAgent(ctx context.Context, slug string) error {
	if !ValidSlug(slug) {
		return noAgent(slug)
	}
	_, err := p.oneAgent(ctx, "revoke an agent", slug,
		"UPDATE sandboxd.agents SET token_sum = NULL WHERE slug = $1 RETURNING "+agentColumns, slug)
	return err
}

// Agent implements Agents.
func (p *postgres) Agent(ctx context.Context, slug string) (Agent, error) {
	if !storable(slug) {
		return Agent{}, noAgent(slug)
	}
	return p.oneAgent(ctx, "read an agent", slug, "SELECT "+agentColumns+" FROM sandboxd.agents WHERE slug = $1", slug)
}

// AgentByToken implements Agents.
func (p *postgres) AgentByToken(ctx context.Context, tokenHash []byte) (out Agent, err error) {
	if len(tokenHash) != hashLen {
		return Agent{}, errNoToken()
	}
	err = p.call(ctx, "look a token up", func(ctx context.Context) error {
		var stored []byte
		err := p.pool.QueryRow(ctx,
			"SELECT token_sum, slug, role, created_at FROM sandboxd.agents WHERE token_sum = $1", tokenHash).
			Scan(&stored, &out.Slug, &out.Role, &out.CreatedAt)
		if errors.Is(err, pgx.ErrNoRows) || (err == nil && subtle.ConstantTimeCompare(stored, tokenHash) != 1) {
			return errNoToken()
		}
		return err
	})
	if err != nil {
		return Agent{}, err
	}
	out.CreatedAt = instant(out.CreatedAt)
	return out, nil
}

func (p *postgres) oneAgent(ctx context.Context, doing, slug, sql string, args ...any) (out Agent, err error) {
	err = p.call(ctx, doing, func(ctx context.Context) error {
		rows, _ := p.pool.Query(ctx, sql, args...)
		out, err = pgx.CollectExactlyOneRow(rows, scanAgent)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return noAgent(slug)
		case violated(err, "agents_pkey"):
			return agentTaken(slug)
		case violated(err, "agents_token_sum"):
			return errTokenTaken()
		}
		return err
	})
	return out, err
}

func scanAgent(row pgx.CollectableRow) (a Agent, err error) {
	err = row.Scan(&a.Slug, &a.Role, &a.Revoked, &a.CreatedAt)
	a.CreatedAt = instant(a.CreatedAt)
	return a, err
}
