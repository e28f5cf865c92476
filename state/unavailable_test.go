package state_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/roboco/sandboxd/state"
	"github.com/roboco/sandboxd/state/statetest"
)

const (
	impatient = time.Second
	// never is when a call that must be bounded is taken to hang: far beyond any timeout in these tests.
	never  = time.Minute
	secret = "s3cr3t-pa55"
)

func withUser(t *testing.T, raw, user, password string) string {
	t.Helper()
	u, err := url.Parse(raw)
	require.NoError(t, err)
	u.User = url.UserPassword(user, password)
	return u.String()
}

// unavailable makes every call of the store, side by side, and wants each one refused before it could be said to hang.
func unavailable(t *testing.T, s state.Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), never)
	defer cancel()
	var g errgroup.Group
	for name, call := range statetest.Calls(s) {
		g.Go(func() error {
			if err := call(ctx); !errors.Is(err, state.ErrUnavailable) {
				return fmt.Errorf("%s: want ErrUnavailable, got %w", name, err)
			}
			return ctx.Err() // it hung until the test's own limit
		})
	}
	require.NoError(t, g.Wait())
}

// answersAgain waits until the store, which was not opened anew, serves what was written before.
func answersAgain(t *testing.T, s state.Store) {
	t.Helper()
	require.Eventually(t, func() bool {
		p, err := s.Project(context.Background(), "before")
		return err == nil && p.Slug == "before"
	}, never, 50*time.Millisecond)
}

// openImpatient opens a store that gives up early, as often as a busy machine needs.
func openImpatient(t *testing.T, url string) state.Store {
	t.Helper()
	var s state.Store
	require.Eventually(t, func() bool {
		var err error
		s, err = state.OpenPostgres(context.Background(), state.PostgresConfig{URL: url, Catalog: statetest.Catalog(), Timeout: impatient})
		return err == nil
	}, never, 50*time.Millisecond)
	t.Cleanup(s.Close)
	return s
}

func TestPostgresGoesAwayAndComesBack(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := statetest.NewServer(t)
	_, _, err := state.Migrate(ctx, server.URL(""), state.Latest)
	require.NoError(t, err)
	s := openPostgres(t, server.URL(""), patient)
	_, _, err = s.PutProject(ctx, state.Project{Slug: "before"})
	require.NoError(t, err)
	s = openImpatient(t, server.URL(""))

	t.Run("frozen", func(t *testing.T) {
		server.Pause(t)
		unavailable(t, s)
		unavailable(t, s)
		_, err := state.OpenPostgres(ctx, state.PostgresConfig{URL: server.URL(""), Timeout: impatient})
		require.ErrorIs(t, err, state.ErrUnavailable)
		server.Unpause(t)
		answersAgain(t, s)
	})

	t.Run("frozen under a call", func(t *testing.T) {
		conn := connect(t, server.URL(""))
		tx, err := conn.Begin(ctx)
		require.NoError(t, err)
		_, err = tx.Exec(ctx, "LOCK TABLE sandboxd.outbox")
		require.NoError(t, err)
		failed := make(chan error, 1)
		slow := openPostgres(t, server.URL(""), 8*time.Second)
		go func() {
			failed <- slow.StartWork(ctx, state.Engagement{Agent: "a", Task: "T"}, state.Outgoing{EventID: "e", Event: []byte("{}")})
		}()
		waiting := connect(t, server.URL(""))
		require.Eventually(t, func() bool {
			var n int
			err := waiting.QueryRow(ctx, "SELECT count(*) FROM pg_locks WHERE NOT granted").Scan(&n)
			return err == nil && n > 0
		}, never, 10*time.Millisecond)
		server.Pause(t)
		select {
		case err := <-failed:
			require.ErrorIs(t, err, state.ErrUnavailable)
		case <-time.After(never):
			t.Fatal("the call hung")
		}
		server.Unpause(t)
		require.NoError(t, tx.Rollback(ctx))
		answersAgain(t, slow)
		// Told again, as a caller would: whether the first one counted or not, it counts once.
		require.Eventually(t, func() bool {
			return slow.StartWork(ctx, state.Engagement{Agent: "a", Task: "T"}, state.Outgoing{EventID: "e", Event: []byte("{}")}) == nil
		}, never, 50*time.Millisecond)
		owed, err := slow.Unpublished(ctx, 0, 10)
		require.NoError(t, err)
		require.Len(t, owed, 1)
	})

	t.Run("killed", func(t *testing.T) {
		server.Kill(t)
		unavailable(t, s)
		_, err := state.OpenPostgres(ctx, state.PostgresConfig{URL: server.URL(""), Timeout: impatient})
		require.ErrorIs(t, err, state.ErrUnavailable)
		_, _, err = state.Migrate(ctx, server.URL(""), state.Latest)
		require.ErrorIs(t, err, state.ErrUnavailable)
		_, _, err = state.SchemaVersion(ctx, server.URL(""))
		require.ErrorIs(t, err, state.ErrUnavailable)
		server.Start(t)
		answersAgain(t, s)
	})

	t.Run("closing while it is frozen", func(t *testing.T) {
		own := openImpatient(t, server.URL(""))
		server.Pause(t)
		closed := make(chan struct{})
		go func() { defer close(closed); own.Close() }()
		select {
		case <-closed:
		case <-time.After(never):
			t.Error("Close hung")
		}
		server.Unpause(t)
	})
}

// TestCrowdWaitsItsTurn: many calls at once over few connections take longer together than one may; none is refused for it
// before it has stood in line for as long as it may.
func TestCrowdWaitsItsTurn(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	raw := statetest.StartPostgres(t)
	_, err := connect(t, raw).Exec(ctx, `
		CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.5); RETURN NEW; END';
		CREATE TRIGGER slowly BEFORE INSERT ON sandboxd.projects FOR EACH ROW EXECUTE FUNCTION slowly()`)
	require.NoError(t, err)
	crowd := func(queue time.Duration) (refused int) {
		s, err := state.OpenPostgres(ctx, state.PostgresConfig{
			URL: raw + "&pool_max_conns=2", Catalog: statetest.Catalog(), Timeout: 4 * time.Second, Queue: queue,
		})
		require.NoError(t, err)
		defer s.Close()
		errs := make(chan error)
		for i := range 24 {
			go func() {
				_, _, err := s.PutProject(ctx, state.Project{Slug: fmt.Sprintf("p%d", i)})
				errs <- err
			}()
		}
		for range 24 {
			if err := <-errs; err != nil {
				require.ErrorIs(t, err, state.ErrUnavailable)
				require.ErrorContains(t, err, "every connection of the pool is in use")
				refused++
			}
		}
		return refused
	}
	require.Zero(t, crowd(never))
	require.Positive(t, crowd(time.Second))
}

// TestPostgresThatNeverAnswers: a port that accepts and says nothing, as behind a firewall or a dead proxy.
func TestPostgresThatNeverAnswers(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	raw := "postgres://u:" + secret + "@" + l.Addr().String() + "/db?sslmode=disable&connect_timeout=1"
	ctx, cancel := context.WithTimeout(context.Background(), never)
	defer cancel()
	_, err = state.OpenPostgres(ctx, state.PostgresConfig{URL: raw, Timeout: impatient})
	require.ErrorIs(t, err, state.ErrUnavailable)
	require.NotContains(t, err.Error(), secret)
	_, _, err = state.Migrate(ctx, raw, state.Latest)
	require.ErrorIs(t, err, state.ErrUnavailable)
	require.NotContains(t, err.Error(), secret)
	_, _, err = state.SchemaVersion(ctx, raw)
	require.ErrorIs(t, err, state.ErrUnavailable)
	require.NoError(t, ctx.Err())
}

func TestPostgresWrongCredentials(t *testing.T) {
	t.Parallel()
	good := statetest.EmptyPostgres(t)
	u, err := url.Parse(good)
	require.NoError(t, err)
	password, _ := u.User.Password()
	u.Path = "/nowhere"
	for title, raw := range map[string]string{
		"password": withUser(t, good, "postgres", secret),
		"user":     withUser(t, good, "nobody", secret),
		"database": u.String(),
	} {
		for call, err := range everyOpening(raw) {
			require.ErrorIs(t, err, state.ErrUnavailable, "%s: %s", title, call)
			require.NotContains(t, err.Error(), secret)
			require.NotContains(t, err.Error(), password)
		}
	}
}

// TestPostgresURLKeepsItsSecret: no way of getting a URL wrong puts any part of the password into the error.
func TestPostgresURLKeepsItsSecret(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"",
		"postgres://u:" + secret + "@127.0.0.1:notaport/db",
		"postgres://u:" + secret + "%zz@127.0.0.1/db",
		"postgres://u:" + secret + "/more@127.0.0.1/db",
		"postgres://u:" + secret + "#more@127.0.0.1/db",
		"postgres://u:" + secret + "?more@127.0.0.1/db",
		"postgres://u:" + secret + "@more@127.0.0.1:99999999/db",
		"postgres://u:" + secret + "@127.0.0.1/db?sslmode=" + "perhaps",
		"postgres://u:" + secret + "@127.0.0.1/db?pool_max_conns=many",
		"postgres://u:" + secret + "@127.0.0.1/db?connect_timeout=soon",
		"postgres://u:" + secret + "@[::1/db",
		"postgres://u:" + secret + "\x00@127.0.0.1/db",
		"mysql://u:" + secret + "@127.0.0.1/db",
		"host=127.0.0.1 user=u password=" + secret,
		"u:" + secret + "@127.0.0.1/db",
	} {
		for call, err := range everyOpening(raw) {
			require.Error(t, err, "%s %q", call, raw)
			require.NotContains(t, err.Error(), secret, call)
			require.NotContains(t, err.Error(), "pa55", call)
		}
	}
}

func everyOpening(raw string) map[string]error {
	ctx := context.Background()
	_, open := state.OpenPostgres(ctx, state.PostgresConfig{URL: raw, Timeout: patient})
	_, _, migrate := state.Migrate(ctx, raw, state.Latest)
	_, _, version := state.SchemaVersion(ctx, raw)
	return map[string]error{"open": open, "migrate": migrate, "version": version}
}
