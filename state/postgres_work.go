package state

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/jackc/pgx/v5"
)

// workLock is the first key of the advisory locks that are taken one for each agent.
const workLock int32 = 0x73626f78

// workRow is an engagement's row with what identifies it.
type workRow struct {
	Engagement
	id int64
}

// StartWork implements Engagements.
func (p *postgres) StartWork(ctx context.Context, e Engagement, out Outgoing) error {
	if err := checkWork(e); err != nil {
		return err
	}
	if err := checkOutgoing(out); err != nil {
		return err
	}
	return p.tx(ctx, "start work", func(ctx context.Context, tx pgx.Tx) error {
		fresh, err := owe(ctx, tx, e.Agent, out)
		if err != nil || !fresh {
			return err
		}
		last, found, err := lastWork(ctx, tx, e.Agent)
		if err != nil {
			return err
		}
		if found && !last.Ended {
			if last.Task == e.Task && last.Project == e.Project {
				_, err := tx.Exec(ctx, "UPDATE sandboxd.engagements SET status = $2, owned = owned OR $3 WHERE id = $1",
					last.id, e.Status, e.Owned)
				return err
			}
			if err := endWork(ctx, tx, &last); err != nil {
				return err
			}
		}
		return insertWork(ctx, tx, e)
	})
}

// EndWork implements Engagements.
func (p *postgres) EndWork(ctx context.Context, agent, task string, out Outgoing) (Engagement, error) {
	if err := checkEnd(agent, task, out); err != nil {
		return Engagement{}, err
	}
	var last workRow
	err := p.tx(ctx, "end work", func(ctx context.Context, tx pgx.Tx) error {
		fresh, err := owe(ctx, tx, agent, out)
		if err != nil {
			return err
		}
		var found bool
		if last, found, err = lastWork(ctx, tx, agent); err != nil || !found {
			return err
		}
		if fresh && !last.Ended && (task == "" || task == last.Task) {
			return endWork(ctx, tx, &last)
		}
		return nil
	})
	if err != nil {
		return Engagement{}, err
	}
	return last.Engagement, nil
}

// Engagement implements Engagements.
func (p *postgres) Engagement(ctx context.Context, agent string) (Engagement, error) {
	if !ValidSlug(agent) {
		return Engagement{}, noEngagement(agent)
	}
	var last workRow
	err := p.call(ctx, "read an engagement", func(ctx context.Context) error {
		var found bool
		var err error
		last, found, err = lastWork(ctx, p.pool, agent)
		if err == nil && !found {
			return noEngagement(agent)
		}
		return err
	})
	return last.Engagement, err
}

// SetOwned implements Engagements.
func (p *postgres) SetOwned(ctx context.Context, agent, task, project string) error {
	if !storable(agent) || !storable(task) || !storable(project) {
		return nil
	}
	return p.call(ctx, "note an engagement's owner", func(ctx context.Context) error {
		_, err := p.pool.Exec(ctx, `
			UPDATE sandboxd.engagements SET owned = true
			WHERE id = (SELECT id FROM sandboxd.engagements WHERE agent = $1 ORDER BY id DESC LIMIT 1)
			  AND task = $2 AND project = $3 AND ended_at IS NULL`, agent, task, project)
		return err
	})
}

// Published implements Engagements.
func (p *postgres) Published(ctx context.Context, eventID string) error {
	if !storable(eventID) {
		return nil
	}
	return p.call(ctx, "mark an event as published", func(ctx context.Context) error {
		_, err := p.pool.Exec(ctx, `
			WITH this AS (SELECT seq, agent FROM sandboxd.outbox WHERE event_id = $1)
			UPDATE sandboxd.outbox o SET published_at = now() FROM this
			WHERE o.published_at IS NULL AND (o.seq = this.seq OR (o.agent = this.agent AND o.agent <> '' AND o.seq < this.seq))`, eventID)
		return err
	})
}

// OwedBefore implements Engagements.
func (p *postgres) OwedBefore(ctx context.Context, eventID string) (out []Outgoing, err error) {
	if !storable(eventID) {
		return nil, nil
	}
	err = p.call(ctx, "list an agent's events that are owed", func(ctx context.Context) error {
		rows, _ := p.pool.Query(ctx, `
			SELECT o.event_id, o.event FROM sandboxd.outbox o, sandboxd.outbox this
			WHERE this.event_id = $1 AND o.agent = this.agent AND o.agent <> '' AND o.seq < this.seq AND o.published_at IS NULL
			ORDER BY o.seq`, eventID)
		out, err = pgx.CollectRows(rows, outgoing)
		return err
	})
	return out, err
}

func outgoing(row pgx.CollectableRow) (o Outgoing, err error) {
	var event string
	err = row.Scan(&o.EventID, &event)
	o.Event = []byte(event)
	return o, err
}

// Unpublished implements Engagements.
func (p *postgres) Unpublished(ctx context.Context, age time.Duration, limit int) (out []Outgoing, err error) {
	err = p.call(ctx, "list the events that are owed", func(ctx context.Context) error {
		rows, _ := p.pool.Query(ctx, `
			SELECT event_id, event FROM sandboxd.outbox
			WHERE published_at IS NULL AND owed_at <= now() - $1::interval
			ORDER BY seq LIMIT $2`, age, owedLimit(limit))
		out, err = pgx.CollectRows(rows, outgoing)
		return err
	})
	return out, err
}

// owe takes the agent's lock until the transaction ends and stores the event; false when its ID is known, and ErrPublished
// when it has been published, too.
func owe(ctx context.Context, tx pgx.Tx, agent string, out Outgoing) (fresh bool, err error) {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(agent))
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1, $2)", workLock, int32(sum.Sum32())); err != nil { //nolint:gosec // a hash: which number it is does not matter
		return false, err
	}
	tag, err := tx.Exec(ctx, `
		INSERT INTO sandboxd.outbox (event_id, event, agent, owed_at) VALUES ($1, $2, $3, clock_timestamp())
		ON CONFLICT (event_id) DO NOTHING`, out.EventID, string(out.Event), agent)
	if err != nil || tag.RowsAffected() == 1 {
		return err == nil, err
	}
	var published bool
	err = tx.QueryRow(ctx, "SELECT published_at IS NOT NULL FROM sandboxd.outbox WHERE event_id = $1", out.EventID).Scan(&published)
	if err == nil && published {
		err = fmt.Errorf("event %s: %w", out.EventID, ErrPublished)
	}
	return false, err
}

type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// lastWork reads the agent's latest engagement.
func lastWork(ctx context.Context, q querier, agent string) (w workRow, found bool, err error) {
	var ended *time.Time
	err = q.QueryRow(ctx, `
		SELECT id, agent, task, project, status, owned, started_at, ended_at
		FROM sandboxd.engagements WHERE agent = $1 ORDER BY id DESC LIMIT 1`, agent).
		Scan(&w.id, &w.Agent, &w.Task, &w.Project, &w.Status, &w.Owned, &w.StartedAt, &ended)
	if errors.Is(err, pgx.ErrNoRows) {
		return workRow{}, false, nil
	}
	if err != nil {
		return workRow{}, false, err
	}
	w.StartedAt = instant(w.StartedAt)
	if ended != nil {
		w.Ended, w.EndedAt = true, instant(*ended)
	}
	return w, true, nil
}

// endWork ends the engagement in the database and in w.
func endWork(ctx context.Context, tx pgx.Tx, w *workRow) error {
	err := tx.QueryRow(ctx, "UPDATE sandboxd.engagements SET ended_at = clock_timestamp() WHERE id = $1 RETURNING ended_at", w.id).
		Scan(&w.EndedAt)
	w.Ended, w.EndedAt = err == nil, instant(w.EndedAt)
	return err
}

func insertWork(ctx context.Context, tx pgx.Tx, e Engagement) error {
	var started *time.Time
	if !e.StartedAt.IsZero() {
		t := instant(e.StartedAt)
		started = &t
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO sandboxd.engagements (agent, task, project, status, owned, started_at)
		VALUES ($1, $2, $3, $4, $5, COALESCE($6, clock_timestamp()))`,
		e.Agent, e.Task, e.Project, e.Status, e.Owned, started)
	return err
}
