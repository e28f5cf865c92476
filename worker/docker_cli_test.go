package worker_test

import (
	"os/exec"
	"testing"
)

// dockerCLI plays an operator at the command line; a failure shows in what the test demands afterwards.
func dockerCLI(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("docker", args...).CombinedOutput()
	if err != nil {
		t.Logf("docker %v: %v: %s", args, err, out)
	}
	return string(out)
}
