package failpoint_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/events/eventstest"
)

// sideBySide is how many cases run at once: each mostly waits for leases and graces to run out.
const sideBySide = "16"

func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", sideBySide)
	}
	code := m.Run()
	if folder := filepath.Dir(built.binary); built.binary != "" {
		_ = os.RemoveAll(folder)
	}
	os.Exit(code)
}

// everything says that the long form was asked for: every point of every scenario, in more than its first pass.
func everything() bool { return os.Getenv("SANDBOXD_CRASH") == "all" }

// built is the binary that all tests here start.
var built struct {
	once   sync.Once
	binary string
	said   string
	err    error
}

// binary builds sandboxd with failpoints, once.
func binary(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		folder, err := os.MkdirTemp("", "sandboxd-failpoints-") //nolint:usetesting // it outlives the test that asks first
		if err != nil {
			built.err = err
			return
		}
		built.binary = filepath.Join(folder, "sandboxd")
		out, err := exec.Command("go", "build", "-tags", "failpoints", "-o", built.binary, "..").CombinedOutput()
		built.said, built.err = string(out), err
	})
	require.NoError(t, built.err, built.said)
	return built.binary
}

// needContainers skips where there is no Docker to run the stores in, before anything is built.
func needContainers(t *testing.T) (redis string) {
	t.Helper()
	return eventstest.StartRedis(t)
}

// cleanEnviron is this process's environment without what configures sandboxd.
func cleanEnviron() []string {
	var all []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "ROBOCO_") && !strings.HasPrefix(kv, "SANDBOXD_") {
			all = append(all, kv)
		}
	}
	return all
}
