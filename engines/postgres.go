package engines

import (
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
)

const (
	pgUser     = "sandbox"
	pgDatabase = "sandbox"
	pgAdmin    = "postgres"
	pgData     = "/var/lib/postgresql/data"
	pgWAL      = "/var/lib/postgresql/wal"
)

// Postgres is the postgres engine.
//
// The agent's role owns its database and can make roles and databases; it is no superuser, so that the allowlist and
// the container contain it. Data and write-ahead log have a tmpfs each: when the data is full there is still room for
// the log, and "full" is an error of one statement, not the end of the server.
func Postgres() Engine {
	features := []string{"citext", "pg_trgm", "postgis", "uuid-ossp", "vector"}
	return Engine{
		Name:        "postgres",
		Short:       "pg",
		Bare:        "postgres:16-alpine",
		Feature:     "roboco-sandbox-pg:latest",
		Port:        5432,
		ReadyWithin: 60 * time.Second,
		Features:    features,
		InPlace:     true,
		User:        pgUser,
		Database:    pgDatabase,
		Describe:    describePostgres,
		Primed:      primedPostgres(),
		Up: func(ctx context.Context, a Access) error {
			return pgAnswers(ctx, a, pgAdmin, a.AdminPassword, "postgres")
		},
		Activate: func(ctx context.Context, a Access, wanted []string) error {
			if err := onlyAllowed("postgres", features, wanted); err != nil {
				return err
			}
			return activatePostgres(ctx, a, wanted)
		},
		Verify: verifyPostgres,
		Probe: func(ctx context.Context, a Access) error {
			return pgAnswers(ctx, a, pgUser, a.Password, pgDatabase)
		},
		URL: func(c Credentials) string {
			u := url.URL{Scheme: "postgres", User: url.UserPassword(c.User, c.Password), Host: net.JoinHostPort(c.Host, strconv.Itoa(c.Port)), Path: "/" + c.Database}
			return u.String()
		},
		Env: func(c Credentials) map[string]string {
			return withoutEmpty(map[string]string{
				"ROBOCO_TEST_DB_HOST":     c.Host,
				"ROBOCO_TEST_DB_PORT":     strconv.Itoa(c.Port),
				"ROBOCO_TEST_DB_USER":     c.User,
				"ROBOCO_TEST_DB_PASSWORD": c.Password,
				"ROBOCO_TEST_DB_ADMIN_DB": c.Database,
			})
		},
	}
}

func describePostgres(o Order) Spec {
	shared, wal := mib(o.part(1, 8)), mib(o.part(1, 8))
	return Spec{
		Image: o.Image,
		Cmd: []string{
			"postgres",
			"-c", "listen_addresses=*",
			"-c", fmt.Sprintf("shared_buffers=%dMB", shared),
			"-c", fmt.Sprintf("max_wal_size=%dMB", wal),
			"-c", fmt.Sprintf("min_wal_size=%dMB", max(wal/2, 8)),
			"-c", fmt.Sprintf("maintenance_work_mem=%dMB", mib(o.part(1, 16))),
			// Nothing here outlives the container, so nothing is paid for durability or replicas.
			"-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off",
			"-c", "wal_level=minimal", "-c", "max_wal_senders=0", "-c", "max_replication_slots=0",
			// One CPU gains nothing by parallel workers, and they spend the shared memory that /dev/shm has little of.
			"-c", "max_parallel_workers_per_gather=0", "-c", "max_parallel_maintenance_workers=0",
			"-c", "jit=off", "-c", "huge_pages=off",
		},
		Env: map[string]string{
			EnvPassword:              o.Password,
			EnvAdminPassword:         o.AdminPassword,
			"POSTGRES_PASSWORD":      o.AdminPassword,
			"POSTGRES_INITDB_WALDIR": pgWAL,
			// Without it initdb compares every zone there is with the machine's: a fifth of the start.
			"TZ":                   "UTC",
			"POSTGRES_INITDB_ARGS": "--no-sync --no-instructions --auth=scram-sha-256 --wal-segsize=4",
		},
		// initdb wants an empty directory, which a mount below it would spoil; so the log has a tmpfs beside it.
		Tmpfs: []Tmpfs{
			{Path: pgData, Size: o.part(3, 8), Mode: "0700"},
			{Path: pgWAL, Size: o.part(7, 32), Mode: "0700"},
		},
		Port: 5432,
		Caps: []string{"CHOWN", "SETUID", "SETGID", "DAC_OVERRIDE", "FOWNER"},
		Shm:  o.part(1, 8),
	}
}

// pgAnswers reports nil when this login gets an answer from this database.
func pgAnswers(ctx context.Context, a Access, user, password, database string) error {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	conn, err := pgConnect(ctx, a, user, password, database)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "SELECT 1")
	return a.blank(fmt.Sprintf("postgres: query database %s as %s", database, user), err)
}

// pgConnect opens one connection. Its settings are given with the login, where they win over whatever the agent has set
// for a database or a role of its own: an administrator's statement must not mean what an agent chooses.
func pgConnect(ctx context.Context, a Access, user, password, database string) (*pgx.Conn, error) {
	doing := fmt.Sprintf("postgres: connect to database %s as %s", database, user)
	host, port, err := net.SplitHostPort(a.Addr)
	if err != nil {
		return nil, a.blank(doing, err)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, a.blank(doing, err)
	}
	cfg, err := pgx.ParseConfig("host=" + host + " sslmode=disable connect_timeout=3")
	if err != nil {
		return nil, a.blank(doing, err)
	}
	cfg.Host, cfg.Port, cfg.User, cfg.Password, cfg.Database = host, uint16(number), user, password, database
	cfg.TLSConfig, cfg.Fallbacks, cfg.ValidateConnect, cfg.AfterConnect = nil, nil, nil, nil
	cfg.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	cfg.RuntimeParams = map[string]string{"application_name": "sandboxd", "client_encoding": "UTF8", "standard_conforming_strings": "on"}
	if user == pgAdmin {
		maps.Copy(cfg.RuntimeParams, map[string]string{
			"search_path": "pg_catalog", "role": "none", "default_transaction_read_only": "off", "statement_timeout": "0",
			"lock_timeout": "0", "default_tablespace": "", "default_table_access_method": "heap",
		})
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	return conn, a.blank(doing, err)
}

// pgInside runs what is to be done in one database as the superuser, and returns when the server has ended the session:
// a connection that lingers in a template blocks CREATE DATABASE.
func pgInside(ctx context.Context, a Access, database string, do func(*pgx.Conn) error) error {
	conn, err := pgConnect(ctx, a, pgAdmin, a.AdminPassword, database)
	if err != nil {
		return err
	}
	err = a.blank("postgres: in database "+database, do(conn))
	return errors.Join(err, a.blank("postgres: leave database "+database, pgLeave(ctx, conn)))
}

// pgLeave ends a session and waits until the server has closed its side, which it does last of all.
func pgLeave(ctx context.Context, conn *pgx.Conn) error {
	raw, err := conn.PgConn().Hijack()
	if err != nil {
		return conn.Close(ctx) // broken already
	}
	defer raw.Conn.Close()
	limit := time.Now().Add(attempt)
	if d, ok := ctx.Deadline(); ok && d.Before(limit) {
		limit = d
	}
	if err := raw.Conn.SetDeadline(limit); err != nil {
		return err
	}
	raw.Frontend.Send(&pgproto3.Terminate{})
	if err := raw.Frontend.Flush(); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, raw.Conn)
	return err
}

// activatePostgres makes role, extensions and database. Extensions go into template1 first: what is made from it then
// has them, the agent's own databases too. In databases that are there already they are made one by one.
func activatePostgres(ctx context.Context, a Access, wanted []string) error {
	var databases []string
	made := false
	err := pgInside(ctx, a, "postgres", func(conn *pgx.Conn) error {
		var version int
		if err := conn.QueryRow(ctx, "SELECT current_setting('server_version_num')::int").Scan(&version); err != nil {
			return fmt.Errorf("ask for the server's version: %w", err)
		}
		if err := pgRole(ctx, conn, version, a.Password); err != nil {
			return fmt.Errorf("make role %s: %w", pgUser, err)
		}
		if err := pgExtend(ctx, a, "template1", wanted); err != nil {
			return err
		}
		rows, err := conn.Query(ctx, `SELECT datname FROM pg_database
			WHERE datallowconn AND pg_has_role($1, datdba, 'MEMBER') ORDER BY datname`, pgUser)
		if err != nil {
			return fmt.Errorf("list the agent's databases: %w", err)
		}
		if databases, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			return fmt.Errorf("list the agent's databases: %w", err)
		}
		made, err = pgMakeDatabase(ctx, conn, version)
		return err
	})
	if err != nil {
		return err
	}
	for _, database := range databases {
		if made && database == pgDatabase {
			continue
		}
		err = errors.Join(err, pgExtend(ctx, a, database, wanted))
	}
	return err
}

// pgMakeDatabase makes the agent's database from template1 unless it is there, and says whether it did. Where nothing is
// durable, to copy the template's files takes half as long as to log their pages.
func pgMakeDatabase(ctx context.Context, conn *pgx.Conn, version int) (made bool, err error) {
	var there bool
	err = conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", pgDatabase).Scan(&there)
	if err != nil || there {
		return false, err
	}
	create := "CREATE DATABASE " + pgDatabase + " OWNER " + pgUser
	if version >= 150000 {
		create += " STRATEGY file_copy"
	}
	if _, err = conn.Exec(ctx, create); err != nil {
		return false, fmt.Errorf("make database %s: %w", pgDatabase, err)
	}
	return true, nil
}

// pgRole makes the agent's role, or gives it again what it should have. Below server 16, CREATEROLE would let it grant
// itself roles that run programs.
func pgRole(ctx context.Context, conn *pgx.Conn, version int, password string) error {
	verifier, err := scramVerifier(password)
	if err != nil {
		return err
	}
	var there bool
	err = conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)", pgUser).Scan(&there)
	if err != nil {
		return err
	}
	verb, rights := "CREATE", "LOGIN CREATEDB NOSUPERUSER NOREPLICATION NOBYPASSRLS"
	if there {
		verb = "ALTER"
	}
	if version >= 160000 {
		rights += " CREATEROLE"
	}
	// The password travels as its verifier, so that no log of statements can hold it.
	statements := []string{fmt.Sprintf("%s ROLE %s %s PASSWORD '%s'", verb, pgUser, rights, verifier)}
	if version >= 150000 {
		statements = append(statements, "GRANT SET ON PARAMETER session_replication_role TO "+pgUser)
	}
	if version >= 160000 {
		statements = append(statements, "ALTER ROLE "+pgUser+" SET createrole_self_grant = 'set, inherit'")
	}
	_, err = conn.Exec(ctx, strings.Join(statements, "; "))
	return err
}

// pgExtend makes these extensions in one database. An agent that has dropped the schema public gets it again, as the
// server makes it.
func pgExtend(ctx context.Context, a Access, database string, wanted []string) error {
	if len(wanted) == 0 {
		return nil
	}
	return pgInside(ctx, a, database, func(conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS public AUTHORIZATION pg_database_owner"); err != nil {
			return fmt.Errorf("make schema public: %w", err)
		}
		for _, name := range wanted {
			if _, err := conn.Exec(ctx, "CREATE EXTENSION IF NOT EXISTS "+pgx.Identifier{name}.Sanitize()+" SCHEMA public"); err != nil {
				return fmt.Errorf("make extension %s: %w", name, err)
			}
		}
		return nil
	})
}

func verifyPostgres(ctx context.Context, a Access, wanted []string) error {
	if len(wanted) == 0 {
		return nil
	}
	var present []string
	err := pgInside(ctx, a, pgDatabase, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, "SELECT extname FROM pg_extension")
		if err != nil {
			return fmt.Errorf("list extensions: %w", err)
		}
		present, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	if err != nil {
		return err
	}
	return missing("postgres", "extensions that are not active", wanted, present)
}

// scramVerifier is what the server keeps of a password under SCRAM-SHA-256 (RFC 5803). The password is hex, so there is
// nothing to normalise.
func scramVerifier(password string) (string, error) {
	const rounds = 4096
	salt := make([]byte, 16)
	if _, err := rand.Read(salt); err != nil {
		return "", fmt.Errorf("make a salt: %w", err)
	}
	salted, err := pbkdf2.Key(sha256.New, password, salt, rounds, sha256.Size)
	if err != nil {
		return "", fmt.Errorf("derive a key: %w", err)
	}
	sign := func(words string) []byte {
		mac := hmac.New(sha256.New, salted)
		mac.Write([]byte(words))
		return mac.Sum(nil)
	}
	stored := sha256.Sum256(sign("Client Key"))
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", rounds, encode(salt), encode(stored[:]), encode(sign("Server Key"))), nil
}
