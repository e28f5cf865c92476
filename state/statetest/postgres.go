package statetest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/roboco/sandboxd/state"
)

const (
	template      = "statetest_template"
	migrateWithin = time.Minute
)

// shared is the one server of this test process: what a start costs is paid once for all tests.
//
//nolint:gochecknoglobals // a server per test process, not per test
var shared struct {
	sync.Mutex
	server *Server
	err    error
	count  int
}

// StartPostgres gives the URL of a new database that has the current schema, on a server that all tests of the process
// share. The database goes when the test ends, the server when the process does. The test is skipped where there is no
// Docker (it fails with REQUIRE_DOCKER=1), and under -short.
func StartPostgres(t testing.TB) string {
	t.Helper()
	return newDatabase(t, " TEMPLATE "+template)
}

// EmptyPostgres is StartPostgres with a database that has no schema yet.
func EmptyPostgres(t testing.TB) string {
	t.Helper()
	return newDatabase(t, "")
}

func newDatabase(t testing.TB, options string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a container: not under -short")
	}
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil && shared.err == nil {
		needDocker(t)
		shared.server, shared.err = startShared()
	}
	if shared.err != nil {
		t.Fatalf("start the Postgres that tests share: %v", shared.err)
	}
	server := shared.server
	shared.count++
	name := fmt.Sprintf("statetest_%d", shared.count)
	if err := server.exec("CREATE DATABASE " + name + options); err != nil {
		t.Fatalf("make a database: %v", err)
	}
	t.Cleanup(func() {
		if err := server.exec("DROP DATABASE " + name + " WITH (FORCE)"); err != nil {
			t.Errorf("drop database %s: %v", name, err)
		}
	})
	return server.URL(name)
}

// startShared starts the server, in memory, with a database that others are copied from.
func startShared() (*Server, error) {
	s, err := startServer("--tmpfs", "/var/lib/postgresql/data")
	if err != nil {
		return nil, err
	}
	if err := s.exec("CREATE DATABASE " + template); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), migrateWithin)
	defer cancel()
	if _, _, err := state.Migrate(ctx, s.URL(template), state.Latest); err != nil {
		return nil, err
	}
	return s, nil
}

// exec runs one statement in the server's first database.
func (s *Server) exec(sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), migrateWithin)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL(""))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, sql)
	return err
}
