package state

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/semaphore"
)

const (
	defaultTimeout = 2 * time.Second
	defaultQueue   = 10 * time.Second
	defaultConns   = 10
	defaultConnect = 5 * time.Second // of Migrate and SchemaVersion; the store's calls have their own timeout
	// idleInTx ends a transaction whose program went silent, so that a gateway cut off holds no agent's lock.
	idleInTx = 10 * time.Second
)

// PostgresConfig says how to reach the database.
type PostgresConfig struct {
	// URL is postgres://user:password@host:port/database?parameters; pool_max_conns there sets the most connections
	// (default 10). No error names the password.
	URL     string
	Catalog Catalog
	// Timeout bounds each call, connecting included; past it the call is ErrUnavailable. 0 = 2 s.
	Timeout time.Duration
	// Queue bounds the wait for a connection while all are in use, before the Timeout begins: a database that serves a
	// crowd is not one that does not answer. Past it the call is ErrUnavailable. 0 = 10 s.
	Queue time.Duration
}

// postgres is the store in PostgreSQL. Its tables live in the schema sandboxd and are named with it everywhere, so that
// neither a search_path nor another program's tables matter.
type postgres struct {
	pool           *pgxpool.Pool
	turns          *semaphore.Weighted // as many as the pool has connections: whoever has one never waits for the pool
	catalog        Catalog
	timeout, queue time.Duration
}

// OpenPostgres connects, checks that the schema is the one this program knows, and returns the store.
// The schema is made by Migrate alone; a missing or older one is a *SchemaError that names `sandboxd migrate`.
// A database that does not answer is ErrUnavailable within the timeout.
func OpenPostgres(ctx context.Context, c PostgresConfig) (Store, error) {
	cfg, err := parseURL(c.URL)
	if err != nil {
		return nil, err
	}
	p := &postgres{
		catalog: c.Catalog.clone(), turns: semaphore.NewWeighted(int64(cfg.MaxConns)),
		timeout: cmp.Or(max(c.Timeout, 0), defaultTimeout), queue: cmp.Or(max(c.Queue, 0), defaultQueue),
	}
	cfg.ConnConfig.ConnectTimeout = p.timeout
	// A connection that went dead while idle is found out early enough to try another within the call.
	cfg.PingTimeout = p.timeout / 2
	if p.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, explain(ctx, "connect to the database", err)
	}
	if err := p.checkSchema(ctx); err != nil {
		p.pool.Close()
		return nil, err
	}
	return p, nil
}

// parseURL never passes on a parser's error: it may quote the URL, or a part of the password taken for a port.
func parseURL(raw string) (*pgxpool.Config, error) {
	u, err := url.Parse(raw)
	if err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
		return nil, errors.New("the database's URL is not of the form postgres://user:password@host:port/database " +
			"(special characters in the password are written as %XX)")
	}
	cfg, err := pgxpool.ParseConfig(raw)
	if err != nil {
		return nil, fmt.Errorf("the database's URL (host %s) has a part that is not understood: the port, or one of the parameters %s",
			quote(u.Hostname()), quoted(parameters(u)))
	}
	if !u.Query().Has("pool_max_conns") {
		cfg.MaxConns = defaultConns
	}
	if !u.Query().Has("connect_timeout") {
		cfg.ConnConfig.ConnectTimeout = defaultConnect
	}
	params := cfg.ConnConfig.RuntimeParams
	setDefault(params, "application_name", "sandboxd")
	setDefault(params, "idle_in_transaction_session_timeout", fmt.Sprint(idleInTx.Milliseconds()))
	return cfg, nil
}

func parameters(u *url.URL) []string {
	names := make([]string, 0, len(u.Query()))
	for name := range u.Query() {
		names = append(names, name)
	}
	return sorted(names)
}

func setDefault(params map[string]string, name, value string) {
	if _, set := params[name]; !set {
		params[name] = value
	}
}

func (p *postgres) checkSchema(ctx context.Context) error {
	want, err := newest()
	if err != nil {
		return err
	}
	var have int64
	err = p.call(ctx, "read the schema's version", func(ctx context.Context) error {
		var there bool
		if err := p.pool.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", versionTable).Scan(&there); err != nil || !there {
			return err
		}
		return p.pool.QueryRow(ctx, "SELECT COALESCE(max(version_id), 0) FROM "+versionTable+" WHERE is_applied").Scan(&have)
	})
	if err != nil {
		return err
	}
	if have != want {
		return &SchemaError{Have: have, Want: want}
	}
	return nil
}

// Ping implements Store.
func (p *postgres) Ping(ctx context.Context) error {
	return p.call(ctx, "ping the database", p.pool.Ping)
}

// Close implements Store.
func (p *postgres) Close() { p.pool.Close() }

// call waits for its turn, runs fn within the timeout and explains its error.
func (p *postgres) call(ctx context.Context, doing string, fn func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return gaveUp(err)
	}
	line, leave := context.WithTimeout(ctx, p.queue)
	err := p.turns.Acquire(line, 1)
	leave()
	if err != nil {
		return explain(ctx, doing, fmt.Errorf("every connection of the pool is in use: %w", err))
	}
	defer p.turns.Release(1)
	inner, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	return explain(ctx, doing, fn(inner))
}

// tx runs fn in a transaction of its own. READ COMMITTED is asked for by name: after waiting for a lock, the next
// statement must see what its last holder wrote, whatever the database's default.
func (p *postgres) tx(ctx context.Context, doing string, fn func(context.Context, pgx.Tx) error) error {
	return p.call(ctx, doing, func(ctx context.Context) error {
		return pgx.BeginTxFunc(ctx, p.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			return fn(ctx, tx)
		})
	})
}

// explain says what was being done, and makes ErrUnavailable of every failure to reach the database or to be served
// by it now. ctx is the caller's: a call that was cancelled is not a store that does not answer.
func explain(ctx context.Context, doing string, err error) error {
	if err == nil {
		return nil
	}
	var invalid *InvalidError
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrTaken) || errors.As(err, &invalid) {
		return err
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("%s: %w", doing, ctx.Err())
	}
	if permanent(err) {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return fmt.Errorf("%s: %w: %w", doing, ErrUnavailable, err)
}

// permanent says whether the database answered, and trying again would be answered alike.
func permanent(err error) bool {
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		return false
	}
	var scan pgx.ScanArgError
	if errors.As(err, &scan) {
		return true
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false // no answer: refused, cut off, or out of time
	}
	switch pg.Code {
	case "57014", // query_canceled: the server's statement_timeout
		"40001", "40P01", // serialization_failure, deadlock_detected
		"55P03", // lock_not_available
		"25006", // read_only_sql_transaction: a standby, after a failover
		"25P03": // idle_in_transaction_session_timeout
		return false
	}
	for _, class := range []string{"08", "53", "57", "58"} { // connection, resources, operator, system
		if strings.HasPrefix(pg.Code, class) {
			return false
		}
	}
	return true
}

// violated says whether err is the breach of this unique constraint or index.
func violated(err error, name string) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "23505" && pg.ConstraintName == name
}
