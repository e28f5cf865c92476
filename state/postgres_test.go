package state_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/roboco/sandboxd/state"
	"github.com/roboco/sandboxd/state/statetest"
)

// patient is a timeout that a busy machine does not reach.
const patient = 30 * time.Second

func openPostgres(t *testing.T, url string, timeout time.Duration) state.Store {
	t.Helper()
	s, err := state.OpenPostgres(context.Background(), state.PostgresConfig{URL: url, Catalog: statetest.Catalog(), Timeout: timeout})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	statetest.Run(t, func(t *testing.T, c state.Catalog) state.Store {
		s, err := state.OpenPostgres(context.Background(),
			state.PostgresConfig{URL: statetest.StartPostgres(t), Catalog: c, Timeout: patient})
		require.NoError(t, err)
		return s
	})
}

// TestPostgresTwoGateways lets two programs tell of one agent's work at once.
func TestPostgresTwoGateways(t *testing.T) {
	t.Parallel()
	url := statetest.StartPostgres(t)
	gateways := []state.Store{openPostgres(t, url, patient), openPostgres(t, url, patient)}
	ctx := context.Background()
	const each = 40
	var g errgroup.Group
	for n, s := range gateways {
		g.Go(func() error {
			for i := range each {
				task := fmt.Sprintf("T-%d", (i+n)%2)
				out := state.Outgoing{EventID: fmt.Sprintf("s-%d-%d", n, i), Event: []byte(`{}`)}
				e := state.Engagement{Agent: "dev", Task: task, Project: "p", Status: "s"}
				if err := s.StartWork(ctx, e, out); err != nil {
					return err
				}
				out.EventID = fmt.Sprintf("e-%d", i) // the same end, told by both
				if _, err := s.EndWork(ctx, "dev", task, out); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())

	conn := connect(t, url)
	count := func(sql string) (n int) {
		t.Helper()
		require.NoError(t, conn.QueryRow(ctx, sql).Scan(&n))
		return n
	}
	require.Equal(t, 3*each, count("SELECT count(*) FROM sandboxd.outbox"), "each event is owed once")
	require.LessOrEqual(t, count("SELECT count(*) FROM sandboxd.engagements WHERE ended_at IS NULL"), 1)
	require.Greater(t, count("SELECT count(*) FROM sandboxd.engagements"), 1, "the engagements before are kept")
	require.Zero(t, count("SELECT count(*) FROM sandboxd.engagements WHERE ended_at < started_at"))
}

// TestPostgresSharesADatabase: tables of the same names that belong to others are not touched.
func TestPostgresSharesADatabase(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := statetest.EmptyPostgres(t)
	conn := connect(t, url)
	for _, table := range []string{"projects", "agents", "flags", "engagements", "outbox", "requests", "goose_db_version"} {
		_, err := conn.Exec(ctx, "CREATE TABLE "+table+" (mine int)")
		require.NoError(t, err)
	}
	_, now, err := state.Migrate(ctx, url, state.Latest)
	require.NoError(t, err)
	require.Positive(t, now)
	s := openPostgres(t, url, patient)
	_, _, err = s.PutProject(ctx, state.Project{Slug: "p"})
	require.NoError(t, err)
	_, _, err = state.Migrate(ctx, url, 0)
	require.NoError(t, err)
	var left int
	require.NoError(t, conn.QueryRow(ctx, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").Scan(&left))
	require.Equal(t, 7, left)
}

// TestPostgresPrunesPublishedEvents: a published event's ID is known for a day, then it goes with the history.
func TestPostgresPrunesPublishedEvents(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := statetest.StartPostgres(t)
	s := openPostgres(t, url, patient)
	conn := connect(t, url)
	_, err := conn.Exec(ctx, `INSERT INTO sandboxd.outbox (event_id, event, owed_at, published_at) VALUES
		('old', '{}', now() - interval '50h', now() - interval '49h'),
		('young', '{}', now() - interval '50h', now() - interval '23h'),
		('owed', '{}', now() - interval '50h', NULL)`)
	require.NoError(t, err)
	n, err := s.PruneRequests(ctx, time.Now())
	require.NoError(t, err)
	require.Zero(t, n, "it counts requests")
	rows, err := conn.Query(ctx, "SELECT event_id FROM sandboxd.outbox ORDER BY 1")
	require.NoError(t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Equal(t, []string{"owed", "young"}, ids)
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}
