package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/roboco/sandboxd/state"
)

func (p program) migrateCommand() *cobra.Command {
	migrate := &cobra.Command{
		Use: "migrate", Short: "Make, change or take down the database's schema", Args: cobra.NoArgs,
		Long: `Brings the schema of the database at ROBOCO_DATABASE_URL to the version this program needs, as "up" does. It lives in the
database's schema "sandboxd" and touches nothing else. Any number of processes may do so at once.`,
		RunE: p.work(p.migrateTo(nil)),
	}
	var upTo, downTo int64
	up := &cobra.Command{
		Use: "up", Short: "Bring the schema up to this program's version, or to --to", Args: cobra.NoArgs,
		RunE: p.work(p.migrateTo(&upTo)),
	}
	up.Flags().Int64Var(&upTo, "to", state.Latest, "the version to reach; -1 is the latest")
	down := &cobra.Command{
		Use: "down", Short: "Take the schema down to version --to, with the data in it", Args: cobra.NoArgs,
		RunE: p.work(p.migrateTo(&downTo)),
	}
	down.Flags().Int64Var(&downTo, "to", 0, "the version to reach; 0 is none of it")
	_ = down.MarkFlagRequired("to") // it destroys data: it must be said
	status := &cobra.Command{
		Use: "status", Short: "Show the schema's version and the one this program needs", Args: cobra.NoArgs,
		RunE: p.work(p.migrationStatus),
	}
	migrate.AddCommand(up, down, status)
	return migrate
}

// migrateTo brings the schema to a version; nil is the latest.
func (p program) migrateTo(version *int64) func(context.Context, config, zerolog.Logger) error {
	return func(ctx context.Context, cfg config, log zerolog.Logger) error {
		what, err := cfg.database()
		if err != nil {
			return err
		}
		to := state.Latest
		if version != nil {
			to = *version
		}
		var from, now int64
		err = p.eventually(ctx, log, what, func(err error) bool { return errors.Is(err, state.ErrUnavailable) }, func(ctx context.Context) (err error) {
			from, now, err = state.Migrate(ctx, cfg.DatabaseURL, to)
			return err
		})
		if err != nil {
			return fmt.Errorf("%s (ROBOCO_DATABASE_URL): %w", what, err)
		}
		_, err = fmt.Fprintf(p.out, "schema: version %d before, %d now\n", from, now)
		return err //nolint:wrapcheck // the output's own
	}
}

// migrationStatus shows both versions; a schema that is not the one needed is a failure.
func (p program) migrationStatus(ctx context.Context, cfg config, _ zerolog.Logger) error {
	what, err := cfg.database()
	if err != nil {
		return err
	}
	have, want, err := state.SchemaVersion(ctx, cfg.DatabaseURL)
	if err != nil {
		return fmt.Errorf("%s (ROBOCO_DATABASE_URL): %w", what, err)
	}
	if _, err := fmt.Fprintf(p.out, "schema: version %d, needed %d\n", have, want); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	if have != want {
		return &state.SchemaError{Have: have, Want: want}
	}
	return nil
}
