package worker

import (
	"context"

	"github.com/roboco/sandboxd/state"
)

// ProjectReader reads one project.
type ProjectReader interface {
	Project(ctx context.Context, slug string) (state.Project, error)
}

// Worker is one consumer of the work stream with its janitor.
type Worker struct{}

// New makes a worker.
func New(_ Config) *Worker { panic("unbuilt") }

// Run works until ctx ends, then drains. Only what cannot be worked without is an error.
func (w *Worker) Run(_ context.Context) error { panic("unbuilt") }

// JanitorPass runs one pass now and returns how many containers and names it changed, or an error: then it did nothing
// to containers.
func (w *Worker) JanitorPass(_ context.Context) (int, error) { panic("unbuilt") }
