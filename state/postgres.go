package state

import "context"

// PostgresConfig says how to reach the database.
type PostgresConfig struct {
	URL     string // postgres://...
	Catalog Catalog
}

// OpenPostgres connects, checks that the schema is the one this program knows, and returns the store.
// The schema is made by Migrate alone; a missing or older one is an error that names `sandboxd migrate`.
func OpenPostgres(_ context.Context, _ PostgresConfig) (Store, error) { panic("unbuilt") }
