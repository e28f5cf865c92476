package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// What dev tells to type can be typed: it names what there is.
func TestDevTellsWhatCanBeTyped(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "sandbox"), nil, 0o700))
	beside := sandboxBeside(filepath.Join(folder, "sandboxd"))
	require.Equal(t, filepath.Join(folder, "sandbox"), beside)
	require.Equal(t, "sandbox", sandboxBeside("sandboxd"), "found by its name, as this one was")
	require.Equal(t, "sandbox", sandboxBeside(filepath.Join(folder, "elsewhere", "sandboxd")))

	walk := demoSeed(8420).walk(beside)
	require.Contains(t, walk, beside+" request && ")
	require.Contains(t, walk, "ROBOCO_SANDBOX_TOKEN=$SANDBOXD_DEV_CHOREOGRAPHER_TOKEN "+beside+" work start $SANDBOXD_DEV_AGENT --project demo --task T-2")
	walk = seed{}.walk(beside)
	require.NotContains(t, walk, "request", "nobody could ask")
	require.Contains(t, walk, "agents add")
}
