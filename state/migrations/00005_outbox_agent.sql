-- +goose Up

-- An agent's events are published in their order, and not again once a later one has been.
ALTER TABLE sandboxd.outbox ADD COLUMN agent text COLLATE "C" NOT NULL DEFAULT ''; -- '' in rows of a program that does not know it
CREATE INDEX outbox_owed_by ON sandboxd.outbox (agent, seq) WHERE published_at IS NULL;

-- +goose Down
DROP INDEX sandboxd.outbox_owed_by;
ALTER TABLE sandboxd.outbox DROP COLUMN agent;
