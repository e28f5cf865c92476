package state_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/roboco/sandboxd/state"
	"github.com/roboco/sandboxd/state/statetest"
)

// schema describes everything that the migrations made, one line for each thing.
func schema(t *testing.T, conn *pgx.Conn) []string {
	t.Helper()
	rows, err := conn.Query(context.Background(), `
		SELECT concat_ws(' ', 'column', table_name, ordinal_position, column_name, data_type, collation_name, is_nullable,
			column_default, is_identity) FROM information_schema.columns WHERE table_schema = 'sandboxd'
		UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'sandboxd'
		UNION ALL SELECT concat_ws(' ', conrelid::regclass, conname, pg_get_constraintdef(oid)) FROM pg_constraint
			WHERE connamespace = 'sandboxd'::regnamespace
		UNION ALL SELECT concat_ws(' ', relkind, relname) FROM pg_class WHERE relnamespace = 'sandboxd'::regnamespace
		UNION ALL SELECT 'type ' || typname FROM pg_type WHERE typnamespace = 'sandboxd'::regnamespace
		UNION ALL SELECT 'function ' || proname FROM pg_proc WHERE pronamespace = 'sandboxd'::regnamespace
		ORDER BY 1`)
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return lines
}

func TestMigrateUpAndDown(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := statetest.EmptyPostgres(t)
	conn := connect(t, url)
	have, last, err := state.SchemaVersion(ctx, url)
	require.NoError(t, err)
	require.Zero(t, have)
	require.Positive(t, last)
	step := func(to, wantFrom, wantNow int64) {
		t.Helper()
		from, now, err := state.Migrate(ctx, url, to)
		require.NoError(t, err)
		require.Equal(t, []int64{wantFrom, wantNow}, []int64{from, now})
		have, want, err := state.SchemaVersion(ctx, url)
		require.NoError(t, err)
		require.Equal(t, []int64{wantNow, last}, []int64{have, want})
	}

	step(state.Latest, 0, last)
	whole := schema(t, conn)
	step(state.Latest, last, last) // nothing to do
	step(0, last, 0)
	bare := schema(t, conn)
	for _, line := range bare {
		require.Contains(t, line, "schema_version", "down to zero leaves goose's table only")
	}
	step(0, 0, 0)

	at := map[int64][]string{0: bare}
	for v := int64(1); v <= last; v++ {
		step(v, v-1, v)
		at[v] = schema(t, conn)
		require.NotEqual(t, at[v-1], at[v])
	}
	require.Equal(t, whole, at[last], "one at a time is the same as all at once")
	for v := last - 1; v >= 0; v-- {
		step(v, v+1, v)
		require.Equal(t, at[v], schema(t, conn), "down to %d is what up to %d was", v, v)
	}
	step(state.Latest, 0, last)
	require.Equal(t, whole, schema(t, conn))

	s := openPostgres(t, url, patient)
	_, created, err := s.PutProject(ctx, state.Project{Slug: "p"})
	require.NoError(t, err)
	require.True(t, created, "and it works")
}

func TestMigrateRefusesATargetItLacks(t *testing.T) {
	t.Parallel()
	for _, to := range []int64{-2, 10_000} {
		_, _, err := state.Migrate(context.Background(), "postgres://127.0.0.1:1/x", to)
		var invalid *state.InvalidError
		require.ErrorAs(t, err, &invalid)
		require.Equal(t, "version", invalid.Field)
	}
}

// TestMigrateAtOnce is several processes that start together against a new database.
func TestMigrateAtOnce(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := statetest.EmptyPostgres(t)
	var g errgroup.Group
	for range 4 {
		g.Go(func() error {
			_, _, err := state.Migrate(ctx, url, state.Latest)
			return err
		})
	}
	require.NoError(t, g.Wait())
	have, want, err := state.SchemaVersion(ctx, url)
	require.NoError(t, err)
	require.Equal(t, want, have)
	var applied int64
	conn := connect(t, url)
	require.NoError(t, conn.QueryRow(ctx, "SELECT count(*) FROM sandboxd.schema_version WHERE version_id > 0").Scan(&applied))
	require.Equal(t, want, applied, "each migration ran once")
}

// TestMigrateWithAMadeSchema: a role that may not make schemas is enough where the schema was made for it.
func TestMigrateWithAMadeSchema(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := statetest.EmptyPostgres(t)
	conn := connect(t, url)
	for _, sql := range []string{
		"CREATE ROLE modest LOGIN PASSWORD 'modest'",
		"CREATE SCHEMA sandboxd AUTHORIZATION modest",
	} {
		_, err := conn.Exec(ctx, sql)
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		_, err := conn.Exec(ctx, "DROP OWNED BY modest; DROP ROLE modest")
		require.NoError(t, err)
	})
	modest := withUser(t, url, "modest", "modest")
	_, _, err := state.Migrate(ctx, modest, state.Latest)
	require.NoError(t, err)
	require.NoError(t, openPostgres(t, modest, patient).Ping(ctx))
}

func TestOpenPostgresChecksTheSchema(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := statetest.EmptyPostgres(t)
	_, last, err := state.SchemaVersion(ctx, url)
	require.NoError(t, err)
	refusal := func() *state.SchemaError {
		t.Helper()
		s, err := state.OpenPostgres(ctx, state.PostgresConfig{URL: url, Timeout: patient})
		require.Nil(t, s)
		var schema *state.SchemaError
		require.ErrorAs(t, err, &schema)
		require.ErrorContains(t, err, "sandboxd migrate")
		require.NotErrorIs(t, err, state.ErrUnavailable)
		require.Equal(t, last, schema.Want)
		return schema
	}
	require.Contains(t, refusal().Error(), "no sandboxd schema")
	_, _, err = state.Migrate(ctx, url, last-1)
	require.NoError(t, err)
	older := refusal()
	require.Equal(t, last-1, older.Have)
	require.Contains(t, older.Error(), "older")

	_, _, err = state.Migrate(ctx, url, state.Latest)
	require.NoError(t, err)
	_, err = connect(t, url).Exec(ctx, "INSERT INTO sandboxd.schema_version (version_id, is_applied) VALUES ($1, true)", last+1)
	require.NoError(t, err)
	newer := refusal()
	require.Equal(t, last+1, newer.Have)
	require.Contains(t, newer.Error(), "newer")
	var schema *state.SchemaError
	_, _, err = state.Migrate(ctx, url, state.Latest)
	require.ErrorAs(t, err, &schema, "a schema of the future is left alone")
}
