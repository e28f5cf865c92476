package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Every mutant's text stands in the code, once: the catalogue follows the code, or it breaks nothing.
func TestMutantsFollowTheCode(t *testing.T) {
	t.Parallel()
	all, err := mutants()
	require.NoError(t, err)
	require.NotEmpty(t, all)
	for _, m := range all {
		_, err := m.overlay("../..", t.TempDir())
		require.NoError(t, err)
	}
}
