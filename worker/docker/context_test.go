package docker_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/worker/docker"
)

// Each case asks for an engine that is not there, and reads in the error which one it was.
func TestWhichEngine(t *testing.T) {
	dir := t.TempDir()
	socket := func(name string) string { return "unix://" + filepath.Join(dir, name+".sock") }
	store := func(name, meta string) {
		sum := sha256.Sum256([]byte(name))
		at := filepath.Join(dir, "contexts", "meta", hex.EncodeToString(sum[:]))
		require.NoError(t, os.MkdirAll(at, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(at, "meta.json"), []byte(meta), 0o600))
	}
	endpoint := `{"Name":%q,"Metadata":{},"Endpoints":{"docker":{"Host":%q,"SkipTLSVerify":false}}}`
	store("mine", fmt.Sprintf(endpoint, "mine", socket("mine")))
	store("named", fmt.Sprintf(endpoint, "named", socket("named")))
	store("hollow", `{"Name":"hollow","Endpoints":{"kubernetes":{}}}`)
	store("broken", `{`)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"auths":{},"currentContext":"mine"}`), 0o600))
	garbled := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(garbled, "config.json"), []byte(`]`), 0o600))

	for name, c := range map[string]struct {
		cfg     docker.Config
		mention string
		dialed  bool
	}{
		"the current context":     {docker.Config{ConfigDir: dir}, socket("mine"), true},
		"a named context":         {docker.Config{ConfigDir: dir, Context: "named"}, socket("named"), true},
		"a host wins":             {docker.Config{ConfigDir: dir, Context: "named", Host: socket("host")}, socket("host"), true},
		"no such context":         {docker.Config{ConfigDir: dir, Context: "missing"}, `docker context "missing"`, false},
		"no directory to look in": {docker.Config{Context: "named"}, `docker context "named"`, false},
		"no docker endpoint":      {docker.Config{ConfigDir: dir, Context: "hollow"}, `"hollow" has no docker endpoint`, false},
		"not JSON":                {docker.Config{ConfigDir: dir, Context: "broken"}, `docker context "broken"`, false},
		"a garbled configuration": {docker.Config{ConfigDir: garbled}, "docker configuration", false},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := docker.Open(t.Context(), c.cfg)
			require.ErrorContains(t, err, c.mention)
			if c.dialed {
				require.ErrorIs(t, err, engines.ErrUnavailable)
			} else {
				require.NotErrorIs(t, err, engines.ErrUnavailable)
			}
		})
	}
}

// "default" and a directory without a configuration both mean the usual socket.
func TestDefaultEngine(t *testing.T) {
	onDocker(t)
	if os.Getenv("DOCKER_HOST") != "" {
		t.Skip("the engine is not at its usual socket")
	}
	for _, cfg := range []docker.Config{{}, {Context: "default"}, {ConfigDir: t.TempDir()}} {
		r, err := docker.Open(t.Context(), cfg)
		require.NoError(t, err)
		require.NoError(t, r.Close())
	}
}
