-- Names sort by their bytes (COLLATE "C"), as Go sorts them, whatever the database's locale.

-- +goose Up
CREATE TABLE sandboxd.projects (
    slug       text COLLATE "C" PRIMARY KEY CHECK (slug ~ '^[a-z0-9][a-z0-9-]{0,39}$'),
    name       text NOT NULL CHECK (name <> ''),
    services   text[],                -- NULL: not opted in; in registry order
    extensions jsonb,                 -- NULL: bare; service -> sorted features
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL
);

CREATE TABLE sandboxd.agents (
    slug       text COLLATE "C" PRIMARY KEY CHECK (slug ~ '^[a-z0-9][a-z0-9-]{0,39}$'),
    role       text NOT NULL,
    token_sum  bytea CHECK (octet_length(token_sum) = 32), -- SHA-256 of the token; NULL: revoked
    created_at timestamptz NOT NULL
);
CREATE UNIQUE INDEX agents_token_sum ON sandboxd.agents (token_sum);

CREATE TABLE sandboxd.flags (
    name       text COLLATE "C" PRIMARY KEY,
    value      boolean NOT NULL,
    updated_at timestamptz NOT NULL
);

-- +goose Down
DROP TABLE sandboxd.flags;
DROP TABLE sandboxd.agents;
DROP TABLE sandboxd.projects;
