-- +goose Up

-- One row for each engagement; an agent's latest is the one with the highest id.
CREATE TABLE sandboxd.engagements (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    agent      text COLLATE "C" NOT NULL,
    task       text NOT NULL CHECK (task <> ''),
    project    text NOT NULL,
    status     text NOT NULL,
    owned      boolean NOT NULL,
    started_at timestamptz NOT NULL,
    ended_at   timestamptz            -- NULL while it goes on
);
CREATE INDEX engagements_latest ON sandboxd.engagements (agent, id DESC);
-- At most one goes on, whatever a program does.
CREATE UNIQUE INDEX engagements_open ON sandboxd.engagements (agent) WHERE ended_at IS NULL;

-- Events stored with the change that they tell of. A published one stays for a while: its ID must be known.
CREATE TABLE sandboxd.outbox (
    seq          bigint GENERATED ALWAYS AS IDENTITY,
    event_id     text COLLATE "C" PRIMARY KEY,
    event        text NOT NULL,       -- JSON, to be published byte for byte
    owed_at      timestamptz NOT NULL,
    published_at timestamptz          -- NULL while it is owed
);
CREATE INDEX outbox_owed ON sandboxd.outbox (seq) WHERE published_at IS NULL;
CREATE INDEX outbox_published ON sandboxd.outbox (published_at) WHERE published_at IS NOT NULL;

-- +goose Down
DROP TABLE sandboxd.outbox;
DROP TABLE sandboxd.engagements;
