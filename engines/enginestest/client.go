package enginestest

import (
	"context"
	"errors"
	"fmt"
)

// Client does as an agent what the suite needs of a server, in that server's own tongue.
type Client interface {
	// Write keeps a value under a key, and Read gives it back.
	Write(ctx context.Context, key, value string) error
	Read(ctx context.Context, key string) (string, error)
	// Fill writes until the server refuses, and returns the refusal. A server that never refuses is errNeverFull.
	Fill(ctx context.Context) error
	// Drop takes away what Fill wrote.
	Drop(ctx context.Context) error
	// Use does something that only this feature can do.
	Use(ctx context.Context, feature string) error
	Close(ctx context.Context)
}

// dropper is a Client of a server where the agent's database can be missing.
type dropper interface {
	// DropDatabase drops the agent's database.
	DropDatabase(ctx context.Context) error
}

// opener opens clients of one scheme: by a connection string, and by what an agent exports (the names without
// ROBOCO_TEST_ and the engine's word, such as HOST).
type opener struct {
	url func(ctx context.Context, url string) (Client, error)
	env func(ctx context.Context, env map[string]string) (Client, error)
}

// openers maps the scheme of a connection string to the client that speaks it.
func openers() map[string]opener {
	return map[string]opener{
		"postgres": {openPostgresURL, openPostgresEnv},
		"redis":    {openRedisURL, openRedisEnv},
		"mongodb":  {openMongoURL, openMongoEnv},
	}
}

// errNeverFull says that a server took more than its container has memory.
var errNeverFull = errors.New("the server never said that it is full")

// unknown is the error of a feature that a client has no use for.
func unknown(feature string) error { return fmt.Errorf("no way is known to use feature %s", feature) }
