package state_test

import (
	"testing"

	"github.com/roboco/sandboxd/state"
	"github.com/roboco/sandboxd/state/statetest"
)

func TestMemory(t *testing.T) {
	statetest.Run(t, func(_ *testing.T, c state.Catalog) state.Store { return state.NewMemory(c) })
}
