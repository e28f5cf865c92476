package enginestest

import (
	"context"
	"fmt"
	"net"
	"net/url"

	"github.com/jackc/pgx/v5"
)

// postgresClient speaks to a postgres server as the agent.
type postgresClient struct {
	conn *pgx.Conn
	url  string
}

func openPostgresURL(ctx context.Context, address string) (Client, error) {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return nil, err
	}
	return &postgresClient{conn, address}, nil
}

func openPostgresEnv(ctx context.Context, env map[string]string) (Client, error) {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(env["USER"], env["PASSWORD"]), Host: net.JoinHostPort(env["HOST"], env["PORT"]),
		Path: "/" + env["ADMIN_DB"],
	}
	return openPostgresURL(ctx, u.String())
}

func (c *postgresClient) Write(ctx context.Context, key, value string) error {
	if _, err := c.conn.Exec(ctx, "CREATE TABLE IF NOT EXISTS kv (key text PRIMARY KEY, value text)"); err != nil {
		return err
	}
	_, err := c.conn.Exec(ctx, "INSERT INTO kv VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value", key, value)
	return err
}

func (c *postgresClient) Read(ctx context.Context, key string) (value string, err error) {
	err = c.conn.QueryRow(ctx, "SELECT value FROM kv WHERE key = $1", key).Scan(&value)
	return value, err
}

func (c *postgresClient) Fill(ctx context.Context) error {
	if _, err := c.conn.Exec(ctx, "CREATE TABLE fill (n int, filler text)"); err != nil {
		return err
	}
	if _, err := c.conn.Exec(ctx, "ALTER TABLE fill ALTER filler SET STORAGE EXTERNAL"); err != nil {
		return err
	}
	for range 128 { // of 8 MiB
		if _, err := c.conn.Exec(ctx, "INSERT INTO fill SELECT n, repeat('x', 8192) FROM generate_series(1, 1024) n"); err != nil {
			return err
		}
	}
	return errNeverFull
}

func (c *postgresClient) Drop(ctx context.Context) error {
	_, err := c.conn.Exec(ctx, "DROP TABLE fill")
	return err
}

func (c *postgresClient) Use(ctx context.Context, feature string) error {
	query, ok := map[string]string{
		"citext":    "SELECT 'Word'::citext = 'wORD'",
		"pg_trgm":   "SELECT similarity('sandbox', 'sandboxes') > 0.5",
		"postgis":   "SELECT ST_Distance('POINT(0 0)'::geometry, 'POINT(3 4)'::geometry) = 5",
		"uuid-ossp": "SELECT uuid_generate_v4() <> uuid_generate_v4()",
		"vector":    "SELECT '[0,0]'::vector <-> '[3,4]'::vector = 5",
	}[feature]
	if !ok {
		return unknown(feature)
	}
	var right bool
	if err := c.conn.QueryRow(ctx, query).Scan(&right); err != nil {
		return err
	}
	if !right {
		return fmt.Errorf("%s: false", query)
	}
	return nil
}

// DropDatabase drops the database from another one, as its owner may. The client is of no use after it.
func (c *postgresClient) DropDatabase(ctx context.Context) error {
	u, err := url.Parse(c.url)
	if err != nil {
		return err
	}
	database := u.Path[1:]
	u.Path = "/postgres"
	other, err := pgx.Connect(ctx, u.String())
	if err != nil {
		return err
	}
	defer other.Close(ctx)
	_, err = other.Exec(ctx, "DROP DATABASE "+pgx.Identifier{database}.Sanitize()+" WITH (FORCE)")
	return err
}

func (c *postgresClient) Close(ctx context.Context) { _ = c.conn.Close(ctx) }
