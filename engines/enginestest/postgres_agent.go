package enginestest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/roboco/sandboxd/engines"
)

// postgresAgent is what only a postgres engine has: an agent that owns its database, and is contained in it. The box has
// every feature.
func (b *box) postgresAgent(t *testing.T) {
	t.Helper()
	for _, c := range []struct {
		name string
		run  func(*box, *testing.T)
	}{
		{"own role and database", (*box).ownRoleAndDatabase},
		{"own database has the extensions", (*box).ownDatabaseHasExtensions},
		{"schema made again", (*box).schemaMadeAgain},
		{"database from template0", (*box).fromTemplate0},
		{"triggers off and on", (*box).triggersOffAndOn},
		{"refused", (*box).refused},
		{"two databases at once", (*box).twoDatabasesAtOnce},
		{"extended where the agent works", (*box).extendedEverywhere},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(b, t) })
	}
	b.lives(t)
}

// in connects to one database as one user; with neither, as the agent to its own.
func (b *box) in(t *testing.T, database, user, pw string) *pgx.Conn {
	t.Helper()
	u, err := url.Parse(b.credentials.URL)
	require.NoError(t, err)
	if database != "" {
		u.Path = "/" + database
	}
	if user != "" {
		u.User = url.UserPassword(user, pw)
	}
	conn, err := pgx.Connect(t.Context(), u.String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// do runs statements, each of which must succeed.
func do(t *testing.T, conn *pgx.Conn, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
}

// useExtensions uses every feature over this connection.
func (b *box) useExtensions(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	c := &postgresClient{conn: conn}
	for _, f := range b.engine.Features {
		require.NoError(t, c.Use(t.Context(), f), f)
	}
}

// createExtensions makes every feature as whoever is connected.
func (b *box) createExtensions(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	for _, f := range b.engine.Features {
		do(t, conn, "CREATE EXTENSION "+pgx.Identifier{f}.Sanitize())
	}
}

func (b *box) ownRoleAndDatabase(t *testing.T) {
	conn := b.in(t, "", "", "")
	var version int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT current_setting('server_version_num')::int").Scan(&version))
	if version < 160000 {
		_, err := conn.Exec(t.Context(), "CREATE ROLE app")
		require.Error(t, err, "below 16, whoever makes roles could run programs")
		return
	}
	do(t, conn, "CREATE ROLE app LOGIN PASSWORD 'app'", "CREATE DATABASE app OWNER app")
	app := b.in(t, "app", "app", "app")
	do(t, app, "CREATE TABLE t (n int)", "INSERT INTO t VALUES (1)")
	do(t, conn, "GRANT CREATE ON SCHEMA public TO app", "SET ROLE app", "CREATE TABLE shared (n int)", "RESET ROLE",
		"INSERT INTO shared VALUES (1)")
	require.NoError(t, app.Close(t.Context()))
	do(t, conn, "DROP DATABASE app WITH (FORCE)", "DROP OWNED BY app", "DROP ROLE app")
}

func (b *box) ownDatabaseHasExtensions(t *testing.T) {
	conn := b.in(t, "", "", "")
	do(t, conn, "CREATE DATABASE mine")
	mine := b.in(t, "mine", "", "")
	do(t, mine, "CREATE TABLE item (embedding vector(2))", "INSERT INTO item VALUES ('[1,2]')")
	b.useExtensions(t, mine)
	do(t, conn, "DROP DATABASE mine WITH (FORCE)")
}

func (b *box) schemaMadeAgain(t *testing.T) {
	conn := b.in(t, "", "", "")
	do(t, conn, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
	require.Error(t, b.engine.Verify(t.Context(), b.access, b.engine.Features), "they went with the schema")
	b.createExtensions(t, conn)
	b.useExtensions(t, conn)
	require.NoError(t, b.engine.Verify(t.Context(), b.access, b.engine.Features))
	one := b.engine.Features[:1]
	do(t, conn, "DROP EXTENSION "+pgx.Identifier(one).Sanitize(), "ALTER SCHEMA public RENAME TO elsewhere")
	require.NoError(t, b.engine.Activate(t.Context(), b.access, one), "the schema is made where it is missing")
	require.NoError(t, b.engine.Verify(t.Context(), b.access, one))
}

func (b *box) fromTemplate0(t *testing.T) {
	conn := b.in(t, "", "", "")
	do(t, conn, "CREATE DATABASE plain TEMPLATE template0")
	plain := b.in(t, "plain", "", "")
	b.createExtensions(t, plain)
	b.useExtensions(t, plain)
	do(t, conn, "DROP DATABASE plain WITH (FORCE)")
}

func (b *box) triggersOffAndOn(t *testing.T) {
	conn := b.in(t, "", "", "")
	const orphan = "INSERT INTO child VALUES (1)"
	do(t, conn, "CREATE TABLE parent (id int PRIMARY KEY)", "CREATE TABLE child (parent int REFERENCES parent)",
		"SET session_replication_role = replica", orphan, "SET session_replication_role = origin")
	_, err := conn.Exec(t.Context(), orphan)
	require.Equal(t, "23503", sqlState(err), "triggers are on again")
	do(t, conn, "DROP TABLE child, parent")
}

// refused is what would break out: a program, a file, the server's settings, a superuser's rights.
func (b *box) refused(t *testing.T) {
	conn := b.in(t, "", "", "")
	do(t, conn, "CREATE TABLE leak (line text)")
	for _, sql := range []string{
		"COPY (SELECT 1) TO PROGRAM 'true'",
		"COPY leak FROM PROGRAM 'id'",
		"COPY leak FROM '/etc/passwd'",
		"COPY leak TO '/tmp/leak'",
		"SELECT pg_read_file('/etc/passwd')",
		"SELECT pg_ls_dir('/')",
		"SELECT lo_import('/etc/passwd')",
		"ALTER SYSTEM SET work_mem = '1GB'",
		"SET session_preload_libraries = 'auto_explain'",
		"LOAD 'auto_explain'",
		"CREATE EXTENSION file_fdw",
		"CREATE EXTENSION pageinspect",
		"CREATE EXTENSION dblink",
		"CREATE FUNCTION f() RETURNS int LANGUAGE c AS 'libc', 'system'",
		"GRANT pg_execute_server_program TO sandbox",
		"GRANT pg_read_server_files TO sandbox",
		"GRANT pg_write_server_files TO sandbox",
		"GRANT pg_read_all_data TO sandbox",
		"CREATE ROLE boss SUPERUSER",
		"CREATE ROLE boss REPLICATION",
		"CREATE ROLE boss BYPASSRLS",
		"CREATE ROLE boss IN ROLE pg_execute_server_program",
		"ALTER ROLE sandbox SUPERUSER",
		"ALTER ROLE postgres PASSWORD 'mine'",
		"SET ROLE postgres",
		"SET SESSION AUTHORIZATION postgres",
		"CREATE EVENT TRIGGER e ON ddl_command_end EXECUTE FUNCTION suppress_redundant_updates_trigger()",
		"CREATE TABLESPACE space LOCATION '/tmp'",
		"DROP DATABASE postgres",
		"ALTER DATABASE template1 OWNER TO sandbox",
		"SELECT pg_reload_conf()",
	} {
		_, err := conn.Exec(t.Context(), sql)
		require.Error(t, err, sql)
		require.Contains(t, []string{"42501"}, sqlState(err), "%s: %v", sql, err)
	}
	var super bool
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT rolsuper FROM pg_roles WHERE rolname = current_user").Scan(&super))
	require.False(t, super)
	do(t, conn, "DROP TABLE leak")
}

// twoDatabasesAtOnce makes databases and roles side by side, as suites that run in parallel do.
func (b *box) twoDatabasesAtOnce(t *testing.T) {
	var group errgroup.Group
	for _, n := range []string{"left", "right"} {
		group.Go(func() error {
			maker := b.credentials.URL
			inside, err := url.Parse(maker)
			if err != nil {
				return err
			}
			inside.Path = "/at_once_" + n
			for _, sql := range []string{"CREATE DATABASE at_once_" + n, "CREATE ROLE at_once_" + n + " LOGIN"} {
				if err := execAt(t.Context(), maker, sql); err != nil {
					return err
				}
			}
			for i := range 5 {
				sql := fmt.Sprintf("CREATE ROLE at_once_%s_%d; GRANT CREATE ON SCHEMA public TO at_once_%s_%d", n, i, n, i)
				if err := execAt(t.Context(), inside.String(), sql); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	do(t, b.in(t, "", "", ""), "DROP DATABASE at_once_left", "DROP DATABASE at_once_right")
}

// execAt runs one statement over a connection of its own.
func execAt(ctx context.Context, at, sql string) error {
	conn, err := pgx.Connect(ctx, at)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err = conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}

// extendedEverywhere takes the extensions away in a database of the agent and of a role it made, with settings that
// would lead an administrator astray, and has them activated again while clients are connected.
func (b *box) extendedEverywhere(t *testing.T) {
	conn := b.in(t, "", "", "")
	do(t, conn, "CREATE ROLE other LOGIN PASSWORD 'other'", "CREATE DATABASE bare TEMPLATE template0 OWNER other")
	client := b.in(t, "bare", "other", "other") // before the settings: they are for new sessions, such as the administrator's
	do(t, conn, "ALTER DATABASE bare SET default_transaction_read_only = on", "ALTER DATABASE bare SET search_path = nowhere",
		"ALTER DATABASE bare SET role = sandbox", "ALTER DATABASE bare SET statement_timeout = '1ms'",
		"CREATE DATABASE closed ALLOW_CONNECTIONS false")
	require.NoError(t, b.engine.Activate(t.Context(), b.access, b.engine.Features))
	b.useExtensions(t, client)
	var inTemplates int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname LIKE 'template%'").Scan(&inTemplates))
	require.Zero(t, inTemplates, "a connection to a template outlived the activation")
	do(t, conn, "CREATE DATABASE directly_after")
}

// parallelJoins asks for far more shared memory than there is, in several sessions: an error at worst, and no death.
func (b *box) parallelJoins(t *testing.T) {
	conn := b.in(t, "", "", "")
	do(t, conn, "CREATE TABLE big AS SELECT n, md5(n::text) AS word FROM generate_series(1, 200000) n", "ANALYZE big")
	var group errgroup.Group
	for range 3 {
		group.Go(func() error {
			sql := `SET max_parallel_workers_per_gather = 4; SET min_parallel_table_scan_size = 0; SET parallel_setup_cost = 0;
				SET parallel_tuple_cost = 0; SET work_mem = '16MB'; SET enable_mergejoin = off; SET enable_nestloop = off;
				SELECT count(*) FROM big a JOIN big b USING (word) JOIN big c USING (word)`
			err := execAt(t.Context(), b.credentials.URL, sql)
			if state := sqlState(err); strings.HasPrefix(state, "53") {
				t.Logf("refused, as it may be: %v", err)
				return nil
			}
			return err
		})
	}
	require.NoError(t, group.Wait())
	b.lives(t)
	do(t, conn, "DROP TABLE big")
}

// postgresSlowStart has the first of the server's two phases last: while the temporary server runs, which listens on
// its socket only, nothing may pass for ready.
func (s suite) postgresSlowStart(t *testing.T) {
	t.Parallel()
	const slow = `cat >/docker-entrypoint-initdb.d/slow.sh <<'END'
echo slow: begin
sleep 3
echo slow: end
END
exec docker-entrypoint.sh "$@"`
	b := s.launch(t, s.order(nil), func(l *engines.Launch) {
		l.Entrypoint = []string{"sh", "-c", slow, "entrypoint"}
	})
	ctx, cancel := context.WithTimeout(t.Context(), s.engine.ReadyWithin)
	defer cancel()
	refused := 0 // attempts while the temporary server ran
	for {
		before := b.logs(t)
		err := s.engine.Up(ctx, b.access)
		if err == nil {
			break
		}
		require.Error(t, s.engine.Probe(ctx, b.access))
		if strings.Contains(before, "slow: begin") && !strings.Contains(b.logs(t), "slow: end") {
			refused++
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not ready: %v; %s", err, b.logs(t))
		case <-time.After(pollEvery):
		}
	}
	require.Contains(t, b.logs(t), "slow: end", "ready before the final server")
	require.Positive(t, refused, "the temporary server was never met, so nothing is proven")
	require.NoError(t, s.engine.Activate(ctx, b.access, nil), "the server that answered is the one that stays")
	require.NoError(t, s.engine.Probe(ctx, b.access))
}

// sqlState is the code of a server's error, or empty.
func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}
