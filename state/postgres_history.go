package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// pruneBatch is how many rows one statement of PruneRequests removes, so that it stays within a call's timeout.
const pruneBatch = 5000

// Flag implements Flags.
func (p *postgres) Flag(ctx context.Context, name string) (Flag, error) {
	if !storable(name) {
		return Flag{}, nil
	}
	var f Flag
	err := p.call(ctx, "read a flag", func(ctx context.Context) error {
		err := p.pool.QueryRow(ctx, "SELECT value, revision FROM sandboxd.flags WHERE name = $1", name).Scan(&f.Value, &f.Revision)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	return f, err
}

// SetFlag implements Flags.
func (p *postgres) SetFlag(ctx context.Context, name string, value *bool) (Flag, error) {
	if err := checkFlag(name); err != nil {
		return Flag{}, err
	}
	f := Flag{Value: value}
	err := p.call(ctx, "set a flag", func(ctx context.Context) error {
		// The revision is drawn anew in the update, where the row is locked: the later change has the higher one.
		return p.pool.QueryRow(ctx, `
			INSERT INTO sandboxd.flags (name, value, updated_at) VALUES ($1, $2, now())
			ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value, updated_at = EXCLUDED.updated_at,
				revision = nextval('sandboxd.flag_revision')
			RETURNING revision`, name, value).Scan(&f.Revision)
	})
	return f, err
}

const requestColumns = `id, agent, role, task, project, host, worker, services, extensions, outcome, guard, message,
	containers, asked_at, done_at, phases`

const upsertRequest = `
	INSERT INTO sandboxd.requests (` + requestColumns + `)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
	ON CONFLICT (id) DO UPDATE SET
		agent = EXCLUDED.agent, role = EXCLUDED.role, task = EXCLUDED.task, project = EXCLUDED.project,
		host = EXCLUDED.host, worker = EXCLUDED.worker, services = EXCLUDED.services, extensions = EXCLUDED.extensions,
		outcome = EXCLUDED.outcome, guard = EXCLUDED.guard, message = EXCLUDED.message, containers = EXCLUDED.containers,
		asked_at = EXCLUDED.asked_at, done_at = EXCLUDED.done_at, phases = EXCLUDED.phases`

// RecordRequests implements History. All rows go in one round trip, all or none.
func (p *postgres) RecordRequests(ctx context.Context, rows []Request) error {
	rows, err := requests(rows, time.Now())
	if err != nil || len(rows) == 0 {
		return err
	}
	batch := &pgx.Batch{}
	for _, r := range rows {
		args, err := requestArgs(r)
		if err != nil {
			return err
		}
		batch.Queue(upsertRequest, args...)
	}
	return p.tx(ctx, "record requests", func(ctx context.Context, tx pgx.Tx) error {
		return tx.SendBatch(ctx, batch).Close()
	})
}

// Requests implements History.
func (p *postgres) Requests(ctx context.Context, f HistoryFilter) (out []Request, err error) {
	limit, err := f.page()
	if err != nil {
		return nil, err
	}
	if !f.storable() {
		return []Request{}, nil
	}
	sql, args := selectRequests(f, limit)
	err = p.call(ctx, "list requests", func(ctx context.Context) error {
		rows, _ := p.pool.Query(ctx, sql, args...)
		out, err = pgx.CollectRows(rows, scanRequest)
		return err
	})
	return out, err
}

// selectRequests names only the conditions that narrow, so that each has its index. Values go as arguments alone.
func selectRequests(f HistoryFilter, limit int) (string, []any) {
	var where []string
	var args []any
	for _, c := range []struct{ condition, value string }{
		{"agent =", f.Agent}, {"project =", f.Project}, {"task =", f.Task}, {"outcome =", f.Outcome}, {"id <", f.Before},
	} {
		if c.value != "" {
			args = append(args, c.value)
			where = append(where, fmt.Sprintf("%s $%d", c.condition, len(args)))
		}
	}
	sql := "SELECT " + requestColumns + " FROM sandboxd.requests"
	if len(where) > 0 {
		sql += " WHERE " + strings.Join(where, " AND ")
	}
	args = append(args, limit)
	return sql + fmt.Sprintf(" ORDER BY id DESC LIMIT $%d", len(args)), args
}

// PruneRequests implements History.
func (p *postgres) PruneRequests(ctx context.Context, before time.Time) (int64, error) {
	total, err := p.pruneAll(ctx, `
		DELETE FROM sandboxd.requests WHERE id IN (
			SELECT id FROM sandboxd.requests WHERE COALESCE(done_at, asked_at) < $1 LIMIT $2)`, before, pruneBatch)
	if err != nil {
		return total, err
	}
	_, err = p.pruneAll(ctx, `
		DELETE FROM sandboxd.pool_claims WHERE container_id IN (
			SELECT container_id FROM sandboxd.pool_claims WHERE claimed_at < $1 LIMIT $2)`, before, pruneBatch)
	if err != nil {
		return total, err
	}
	_, err = p.pruneAll(ctx, `
		DELETE FROM sandboxd.outbox WHERE event_id IN (
			SELECT event_id FROM sandboxd.outbox WHERE published_at < LEAST($1, now() - $3::interval) LIMIT $2)`,
		before, pruneBatch, keepPublished)
	return total, err
}

// pruneAll runs a statement that removes at most pruneBatch rows until it finds fewer, and returns how many went.
func (p *postgres) pruneAll(ctx context.Context, sql string, args ...any) (total int64, err error) {
	for {
		n, err := p.prune(ctx, sql, args...)
		total += n
		if err != nil || n < pruneBatch {
			return total, err
		}
	}
}

func (p *postgres) prune(ctx context.Context, sql string, args ...any) (n int64, err error) {
	err = p.call(ctx, "prune the history", func(ctx context.Context) error {
		tag, err := p.pool.Exec(ctx, sql, args...)
		n = tag.RowsAffected()
		return err
	})
	return n, err
}

func requestArgs(r Request) ([]any, error) {
	var containers, phases []byte
	var err error
	if r.Containers != nil {
		if containers, err = json.Marshal(r.Containers); err != nil {
			return nil, fmt.Errorf("record request %s: %w", quote(r.ID), err)
		}
	}
	if r.Phases != nil {
		if phases, err = json.Marshal(r.Phases); err != nil {
			return nil, fmt.Errorf("record request %s: %w", quote(r.ID), err)
		}
	}
	var done *time.Time
	if !r.DoneAt.IsZero() {
		done = &r.DoneAt
	}
	return []any{
		r.ID, r.Agent, r.Role, r.Task, r.Project, r.Host, r.Worker, r.Services, lists(r.Extensions), r.Outcome,
		int64(r.Guard), r.Message, containers, r.AskedAt, done, phases,
	}, nil
}

func scanRequest(row pgx.CollectableRow) (r Request, err error) {
	var done *time.Time
	err = row.Scan(&r.ID, &r.Agent, &r.Role, &r.Task, &r.Project, &r.Host, &r.Worker, &r.Services, &r.Extensions, &r.Outcome,
		&r.Guard, &r.Message, &r.Containers, &r.AskedAt, &done, &r.Phases)
	r.AskedAt = instant(r.AskedAt)
	if done != nil {
		r.DoneAt = instant(*done)
	}
	return r, err
}
