-- +goose Up

-- Request IDs are UUIDv7: their order is the order of time, so the key is also the page cursor.
CREATE TABLE sandboxd.requests (
    id         text COLLATE "C" PRIMARY KEY,
    agent      text NOT NULL,
    role       text NOT NULL,
    task       text NOT NULL,
    project    text NOT NULL,
    host       text NOT NULL,
    worker     text NOT NULL,
    services   text[],                -- as asked; NULL: the whole set
    extensions jsonb,
    outcome    text NOT NULL,
    guard      bigint NOT NULL,
    message    text NOT NULL,
    containers jsonb,
    asked_at   timestamptz NOT NULL,
    done_at    timestamptz,           -- NULL while it is not done
    phases     jsonb                  -- phase -> milliseconds
);
CREATE INDEX requests_agent ON sandboxd.requests (agent, id DESC);
CREATE INDEX requests_project ON sandboxd.requests (project, id DESC);
CREATE INDEX requests_task ON sandboxd.requests (task, id DESC);
CREATE INDEX requests_outcome ON sandboxd.requests (outcome, id DESC);
-- No pending list: a look-up would have to read through all of it.
CREATE INDEX requests_containers ON sandboxd.requests USING gin (containers jsonb_path_ops) WITH (fastupdate = off);
CREATE INDEX requests_settled ON sandboxd.requests ((COALESCE(done_at, asked_at)));

-- +goose Down
DROP TABLE sandboxd.requests;
