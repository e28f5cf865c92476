package state

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Latest is the target of Migrate that means every migration this program has.
const Latest int64 = -1

const (
	// versionTable is goose's; it lives in our schema, so that a shared database stays tidy.
	versionTable = "sandboxd.schema_version"
	// migrateLock is the advisory lock that one Migrate holds at a time.
	migrateLock int64 = 0x73616e64626f78
	// migrateWait is how many seconds a Migrate waits for another one.
	migrateWait = 120
)

// SchemaError says that the database's schema is not the one this program needs.
type SchemaError struct {
	Have, Want int64 // versions; Have 0 is a database without our schema
}

// Error names what to do about it.
func (e *SchemaError) Error() string {
	switch {
	case e.Have == 0:
		return fmt.Sprintf("the database has no sandboxd schema (version %d is needed): run `sandboxd migrate`", e.Want)
	case e.Have < e.Want:
		return fmt.Sprintf("the database's schema is at version %d, older than the %d this program needs: run `sandboxd migrate`",
			e.Have, e.Want)
	default:
		return fmt.Sprintf("the database's schema is at version %d, newer than the %d this program knows: run a newer sandboxd, "+
			"or take the schema down with the newer program's `sandboxd migrate`", e.Have, e.Want)
	}
}

// Migrate brings the schema of the database at url to a version, up or down: Latest, or a number, 0 for none of it.
// It returns the versions before and after. Any number of processes may call it at once; one works, the rest wait.
// A database that does not answer is ErrUnavailable after the URL's connect_timeout, 5 s where it has none.
func Migrate(ctx context.Context, url string, to int64) (from, now int64, err error) {
	last, err := newest()
	if err != nil {
		return 0, 0, err
	}
	if to == Latest {
		to = last
	}
	if to < 0 || to > last {
		return 0, 0, &InvalidError{Field: "version", Problem: fmt.Sprintf("%d is outside 0 to %d", to, last)}
	}
	db, err := openSQL(url)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = db.Close() }()
	if err := createSchema(ctx, db); err != nil {
		return 0, 0, explain(ctx, "make schema sandboxd", err)
	}
	p, err := provider(db)
	if err != nil {
		return 0, 0, fmt.Errorf("read the migrations: %w", err)
	}
	if from, err = storedVersion(ctx, db); err != nil {
		return 0, 0, explain(ctx, "read the schema's version", err)
	}
	if from > last {
		return from, from, &SchemaError{Have: from, Want: last}
	}
	switch {
	case to < from:
		_, err = p.DownTo(ctx, to)
	case to > from:
		_, err = p.UpTo(ctx, to)
	}
	if err != nil {
		return from, from, explain(ctx, fmt.Sprintf("migrate the schema from version %d to %d", from, to), err)
	}
	return from, to, nil
}

// SchemaVersion says which version the database at url has, 0 for none, and which one this program needs.
func SchemaVersion(ctx context.Context, url string) (have, want int64, err error) {
	db, err := openSQL(url)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = db.Close() }()
	if want, err = newest(); err != nil {
		return 0, 0, err
	}
	have, err = storedVersion(ctx, db)
	return have, want, explain(ctx, "read the schema's version", err)
}

func openSQL(url string) (*sql.DB, error) {
	cfg, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	return stdlib.OpenDB(*cfg.ConnConfig), nil
}

// createSchema makes the schema under a lock of its own: CREATE SCHEMA IF NOT EXISTS fails when two run at once, and
// needs a right that a role whose schema was made for it may lack.
func createSchema(ctx context.Context, db *sql.DB) error {
	ctx, cancel := context.WithTimeout(ctx, migrateWait*time.Second)
	defer cancel()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1)", migrateLock+1); err != nil {
		return err
	}
	var there bool
	if err := tx.QueryRowContext(ctx, "SELECT to_regnamespace('sandboxd') IS NOT NULL").Scan(&there); err != nil {
		return err
	}
	if !there {
		if _, err := tx.ExecContext(ctx, "CREATE SCHEMA sandboxd"); err != nil {
			return err
		}
	}
	return tx.Commit()
}

func provider(db *sql.DB) (*goose.Provider, error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockID(migrateLock), lock.WithLockTimeout(1, migrateWait))
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithTableName(versionTable),
		goose.WithSessionLocker(locker),
		goose.WithDisableGlobalRegistry(true))
}

// newest is the version of the last migration in the program.
func newest() (int64, error) {
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return 0, err
	}
	var last int64
	for _, f := range files {
		v, err := goose.NumericComponent(f)
		if err != nil {
			return 0, fmt.Errorf("read the migrations: %w", err)
		}
		last = max(last, v)
	}
	return last, nil
}

// storedVersion reads the version without making goose's table.
func storedVersion(ctx context.Context, db *sql.DB) (int64, error) {
	var there bool
	err := db.QueryRowContext(ctx, "SELECT to_regclass($1) IS NOT NULL", versionTable).Scan(&there)
	if err != nil || !there {
		return 0, err
	}
	var v sql.NullInt64
	err = db.QueryRowContext(ctx, "SELECT max(version_id) FROM "+versionTable+" WHERE is_applied").Scan(&v)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return v.Int64, err
}
