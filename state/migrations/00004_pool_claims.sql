-- +goose Up

-- What each container from a pool was claimed for: its labels cannot tell, and Redis may forget.
CREATE TABLE sandboxd.pool_claims (
    container_id text COLLATE "C" PRIMARY KEY,
    request_id   text NOT NULL,
    agent        text NOT NULL,
    engine       text NOT NULL,
    host         text NOT NULL,
    task         text NOT NULL,
    project      text NOT NULL,
    owner        text NOT NULL,
    born         text NOT NULL,
    epoch        text NOT NULL,
    claimed_at   timestamptz NOT NULL
);
CREATE INDEX pool_claims_claimed ON sandboxd.pool_claims (claimed_at);
-- A container is looked up among the claims; nothing looks for it among the requests.
DROP INDEX sandboxd.requests_containers;

-- +goose Down
CREATE INDEX requests_containers ON sandboxd.requests USING gin (containers jsonb_path_ops) WITH (fastupdate = off);
DROP TABLE sandboxd.pool_claims;
