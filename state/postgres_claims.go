package state

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

const claimColumns = "container_id, request_id, agent, engine, host, task, project, owner, born, epoch, claimed_at"

// RecordClaim implements History. It is one row in one round trip: a run waits for it. A row that stands is written as it was,
// so that it comes back.
func (p *postgres) RecordClaim(ctx context.Context, c Claim) error {
	c, err := c.kept(time.Now())
	if err != nil {
		return err
	}
	var first Claim
	err = p.call(ctx, "record a claim", func(ctx context.Context) error {
		row := p.pool.QueryRow(ctx, `
			INSERT INTO sandboxd.pool_claims (`+claimColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
			ON CONFLICT (container_id) DO UPDATE SET agent = pool_claims.agent
			RETURNING agent, epoch`,
			c.ContainerID, c.RequestID, c.Agent, c.Engine, c.Host, c.Task, c.Project, c.Owner, c.Born, c.Epoch, c.ClaimedAt)
		return row.Scan(&first.Agent, &first.Epoch)
	})
	if err != nil {
		return err
	}
	return c.follows(first)
}

// Claims implements History.
func (p *postgres) Claims(ctx context.Context, containerIDs []string) (map[string]Claim, error) {
	wanted := make([]string, 0, len(containerIDs))
	for _, id := range containerIDs {
		if storable(id) {
			wanted = append(wanted, id)
		}
	}
	out := make(map[string]Claim, len(wanted))
	err := p.call(ctx, "look claims up", func(ctx context.Context) error {
		rows, _ := p.pool.Query(ctx, "SELECT "+claimColumns+" FROM sandboxd.pool_claims WHERE container_id = ANY($1)", wanted)
		found, err := pgx.CollectRows(rows, scanClaim)
		for _, c := range found {
			out[c.ContainerID] = c
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func scanClaim(row pgx.CollectableRow) (c Claim, err error) {
	err = row.Scan(&c.ContainerID, &c.RequestID, &c.Agent, &c.Engine, &c.Host, &c.Task, &c.Project, &c.Owner, &c.Born, &c.Epoch, &c.ClaimedAt)
	c.ClaimedAt = instant(c.ClaimedAt)
	return c, err
}
