// Package enginestest is the conformance suite of engines: it loops over a registry and proves, on real containers, that
// each engine is what it says. Any runtime can run it. An engine whose connection string has a scheme that is known here
// (see client.go) is covered without a line of test.
//
// Start reading at Run, then box.go.
package enginestest

import (
	"context"
	"testing"
	"time"

	"github.com/roboco/sandboxd/engines"
)

// Runtime is what the suite needs of a container engine. Errors are those of package engines.
type Runtime interface {
	Maker
	Inspect(ctx context.Context, idOrName string) (engines.Container, error)
	Logs(ctx context.Context, id string, lines int) (string, error)
	WaitExit(ctx context.Context, id string) (exitCode int, err error)
}

// Maker makes containers and takes them away.
type Maker interface {
	EnsureImage(ctx context.Context, image string, progress func(engines.PullProgress)) error
	Create(ctx context.Context, l engines.Launch) (id string, err error)
	Start(ctx context.Context, id string) error
	Remove(ctx context.Context, id string, grace time.Duration) error
}

// Process is one that runs in a container.
type Process struct {
	// UID is the user, by number as this machine sees it.
	UID int
	// Command is the whole command line.
	Command string
}

// Config says what to test on what.
type Config struct {
	Runtime  Runtime
	Registry engines.Registry
	// Network to put containers on; empty is the runtime's default.
	Network string
	// Prefix begins every container's name; it must be this run's alone.
	Prefix string
	// Labels for every container.
	Labels map[string]string
	// Processes lists a container's processes, to prove that no server runs as root and that no command line holds a
	// password. Nil leaves that out, for runtimes that cannot tell.
	Processes func(ctx context.Context, id string) ([]Process, error)
	// Prime gives the name of the image that is derived of an engine's image by this name, and makes it where it is not there.
	// Nil leaves primed images out.
	Prime func(ctx context.Context, e engines.Engine, base string) (primed string, err error)
	// Memory is each container's limit in bytes; 0 means 512 MiB.
	Memory int64
}

// Run tests every engine of the registry, side by side.
func Run(t *testing.T, cfg Config) {
	t.Helper()
	if cfg.Memory == 0 {
		cfg.Memory = 512 << 20
	}
	for _, e := range cfg.Registry {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			s := suite{Config: cfg, engine: e}
			s.run(t)
			if e.Name == "postgres" {
				t.Run("slow start", s.postgresSlowStart)
			}
			if e.Primed != nil && cfg.Prime != nil {
				t.Run("primed", func(t *testing.T) {
					t.Parallel()
					s.primed = true
					s.run(t)
					if e.Name == "postgres" {
						s.postgresPrimed(t)
					}
				})
			}
		})
	}
}

// run tests one engine, on its own images or on the primed ones of them.
func (s suite) run(t *testing.T) {
	t.Helper()
	e := s.engine
	t.Run("bare", s.bare)
	if len(e.Features) == 0 {
		return
	}
	t.Run("extend", s.extend) // the first feature alone, then all
	for _, f := range e.Features[1:] {
		t.Run("feature "+f, func(t *testing.T) { t.Parallel(); s.features(t, []string{f}) })
	}
	t.Run("all features", func(t *testing.T) {
		t.Parallel()
		b := s.features(t, e.Features)
		if e.Name == "postgres" {
			b.postgresAgent(t)
		}
	})
}

// suite is the test of one engine.
type suite struct {
	Config
	engine engines.Engine
	primed bool
}
