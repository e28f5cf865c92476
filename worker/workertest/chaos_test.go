package workertest

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/worker"
)

// TestChaos is the protocol under faults, on a real Redis: nothing may be violated. The seeds are fixed, so that two runs have the
// same schedule; the command chaos runs longer, and with others.
func TestChaos(t *testing.T) {
	logging.Disable() // broken connections are the point
	for _, mode := range []Mode{Kill, Flush} {
		t.Run(string(mode), func(t *testing.T) {
			log, shown := chaosLog(t)
			two := worker.PoolSize{Floor: 2, Ceiling: 2}
			r, err := Chaos(t.Context(), Options{
				Seed: 1, Mode: mode, Duration: 20 * time.Second, Redis: testRedis(t), Log: log,
				Pool: map[string]worker.PoolSize{"redis": two, "postgres": two, "mongo": two},
			})
			require.NoError(t, err)
			t.Log(r)
			require.Positive(t, r.States["ok"], "nothing was answered")
			require.Positive(t, r.Counts["fault: worker killed"])
			require.Positive(t, r.Marks[string(MarkClaim)], "nothing was claimed from a pool")
			require.Positive(t, r.Marks[string(MarkRetire)], "no pool was drained")
			require.Empty(t, r.Violations, "the workers' log: %s", shown)
		})
	}
}

// chaosLog keeps the workers' log where it can be read after a failure.
func chaosLog(t *testing.T) (log zerolog.Logger, name string) {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "chaos-*.log")
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, f.Close())
		if !t.Failed() {
			require.NoError(t, os.Remove(f.Name()))
		}
	})
	return zerolog.New(io.Writer(f)), f.Name()
}

// testRedis is a Redis of the test's own in a container.
func testRedis(t *testing.T) RedisServer {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a real Redis: not under -short")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "docker", "version").CombinedOutput(); err != nil {
		if os.Getenv("REQUIRE_DOCKER") == "1" {
			t.Fatalf("docker does not answer: %v: %s", err, out)
		}
		t.Skipf("docker does not answer: %v", err)
	}
	s, err := RedisContainer(ctx, fmt.Sprintf("workertest-%d-%d", os.Getpid(), time.Now().UnixNano()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}
