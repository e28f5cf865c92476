package worker

import (
	"context"
	"time"

	"github.com/roboco/sandboxd/engines"
)

// What the worker needs of a container engine, cut where it is used. worker/docker fulfils all of it; workertest
// simulates it. Errors are those of package engines: ErrNotFound, ErrNameTaken, ErrUnavailable, ErrForeign,
// *PullError; every other one is permanent.

// Creator makes containers and gives them names.
type Creator interface {
	// Create makes a container, hardened, and does not start it. On an error nothing of it is left where that can be known.
	Create(ctx context.Context, l engines.Launch) (id string, err error)
	Start(ctx context.Context, id string) error
	// Rename fails with ErrNameTaken when another container bears the name.
	Rename(ctx context.Context, id, name string) error
}

// Inspector looks at containers.
type Inspector interface {
	// Inspect takes a full ID or a name; ErrNotFound when there is none.
	Inspect(ctx context.Context, idOrName string) (engines.Container, error)
	// List gives all containers, stopped ones too, that carry every one of these labels.
	List(ctx context.Context, labels map[string]string) ([]engines.Container, error)
	// ListNamed gives all containers, stopped ones too, whose name begins with prefix.
	ListNamed(ctx context.Context, prefix string) ([]engines.Container, error)
	// Logs gives the last lines of both streams.
	Logs(ctx context.Context, id string, lines int) (string, error)
}

// Remover takes containers away.
type Remover interface {
	// Remove sends the image's stop signal, waits up to grace for the exit (0: not at all), then removes by force with
	// anonymous volumes. A container that is gone already is no error; one without our label is ErrForeign.
	Remove(ctx context.Context, id string, grace time.Duration) error
}

// Watcher reports what happens to containers, without polling.
type Watcher interface {
	// WaitExit returns when the container is not running any more, with its exit code.
	WaitExit(ctx context.Context, id string) (exitCode int, err error)
	// Events calls found for everything that happens to a container from now on, ours or not, until ctx ends or the feed breaks
	// (its error). It calls connected once the feed stands.
	Events(ctx context.Context, connected func(), found func(engines.Event)) error
}

// Puller gets images.
type Puller interface {
	// EnsureImage inspects the image and pulls it only when it is absent, within its own limit of 300 s, shared between
	// all callers in this process: the first caller's end does not end the others' pull. While it waits for its turn, progress
	// tells its place in the line. Failures are *engines.PullError.
	EnsureImage(ctx context.Context, image string, progress func(engines.PullProgress)) error
	// ImageID is the content's digest behind an image's name, without a pull; ErrNotFound when it is not there.
	ImageID(ctx context.Context, image string) (string, error)
}

// Deriver makes images of other images, and takes them away again.
type Deriver interface {
	// Derive builds an image, without a network, on one that is there. It takes as long as it takes: ctx limits it. On an
	// error, which tells the last lines of the build, nothing of it is left where that can be known.
	Derive(ctx context.Context, d engines.Derivation) error
	// DerivedImages lists every image with engines.LabelDerivation that no other one is built on: whole ones, and what is left
	// of builds that were cut off or are under way.
	DerivedImages(ctx context.Context) ([]engines.Image, error)
	// RemoveDerived removes one of them, by its ID, and what its build left. ErrInUse when a container uses it, ErrForeign
	// when it lacks the label or bears a name that is not ours. One that is gone already is no error.
	RemoveDerived(ctx context.Context, id string) error
}

// Images gets images, and makes some.
type Images interface {
	Puller
	Deriver
}

// Host describes the machine behind the container engine.
type Host interface {
	// EnsureNetwork makes the bridge network where it is absent.
	EnsureNetwork(ctx context.Context, name string) error
	// HostID names the engine, stable over restarts of this process.
	HostID(ctx context.Context) (string, error)
	// Ping is nil when the engine answers.
	Ping(ctx context.Context) error
	// Capacity tells what the host has, and what of it sandboxes may use already.
	Capacity(ctx context.Context) (engines.Capacity, error)
}

// Runtime is all of a container engine.
type Runtime interface {
	Creator
	Inspector
	Remover
	Watcher
	Images
	Host
}
