package main

import (
	"context"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(workerSettings) != "" { // the test binary as a worker process of a run
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		err := runWorker(ctx)
		stop()
		if err != nil {
			os.Exit(2)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m, leftByLinks())
}

// A few seconds of a run, so that the harness does not rot: real processes, real stores, the simulated engine.
func TestShortRun(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Docker: not under -short")
	}
	if out, err := exec.Command("docker", "version").CombinedOutput(); err != nil {
		if os.Getenv("REQUIRE_DOCKER") == "1" {
			t.Fatalf("docker does not answer: %v: %s", err, out)
		}
		t.Skipf("docker does not answer: %v", err)
	}
	logging.Disable() // broken connections are the point
	binary := filepath.Join(t.TempDir(), "sandboxd")
	out, err := exec.Command("go", "build", "-o", binary, "../sandboxd").CombinedOutput()
	require.NoError(t, err, string(out))
	o, _, err := parse([]string{"-seed", "1", "-mode", "flush", "-duration", "6s", "-agents", "8", "-sandboxd", binary, "-logs", t.TempDir()})
	require.NoError(t, err)
	o.Progress = io.Discard
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	r, err := once(ctx, o)
	require.NoError(t, err)
	t.Log(r)
	require.Empty(t, r.Violations)
	require.NotEmpty(t, r.faults)
	require.Positive(t, r.outcomes[outcomeOK], "nothing was answered")
}
