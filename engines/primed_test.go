package engines_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/engines"
)

// TestPrimedIsComplete holds every engine with a primed image to what whoever derives it takes for granted.
func TestPrimedIsComplete(t *testing.T) {
	t.Parallel()
	tags := map[string]bool{}
	for _, e := range engines.Builtin() {
		if e.Primed == nil {
			continue
		}
		require.NotNil(t, e.Primed.Describe, e.Name)
		const id = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
		d := e.Derivation(e.Bare, id)
		require.Regexp(t, `^`+engines.PrimedName+`:`+e.Short+`-0123456789ab-[0-9a-f]{8}$`, d.Tag)
		require.Contains(t, e.Primed.Files["Dockerfile"], "ARG BASE\nFROM ${BASE}\n", e.Name)
		require.Contains(t, d.Marked("word"), "\nFROM ${BASE}\nLABEL roboco.sandbox.derivation=word\n", "no step may come before the mark")
		require.Equal(t, 1, strings.Count(d.Marked("word"), "=word\n"))
		require.Equal(t, map[string]string{
			engines.LabelPrimed: id, engines.LabelPrimedBase: e.Bare, engines.LabelPrimedRecipe: e.Primed.Recipe(),
		}, d.Labels)
		require.NotEqual(t, d.Tag, e.Derivation(e.Bare, strings.Replace(id, "0123", "9123", 1)).Tag, "another content")
		changed := *e.Primed
		changed.Files = maps.Clone(changed.Files)
		changed.Files["Dockerfile"] += "\n"
		e.Primed = &changed
		require.NotEqual(t, d.Tag, e.Derivation(e.Bare, id).Tag, "another recipe")
		require.False(t, tags[d.Tag])
		tags[d.Tag] = true
	}
	require.NotEmpty(t, tags)
}

// images/build.sh must come to the recipe that a worker looks for.
func TestRecipeAsTheScriptHasIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := engines.Postgres().Primed
	for name, content := range p.Files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "LC_ALL=C sha256sum -- * | sha256sum | cut -c1-16")
	cmd.Dir = dir
	out, err := cmd.Output()
	require.NoError(t, err)
	require.Equal(t, p.Recipe(), strings.TrimSpace(string(out)))
	script, err := os.ReadFile("../images/build.sh")
	require.NoError(t, err)
	require.Contains(t, string(script), "LC_ALL=C sha256sum -- * | sha256sum | cut -c1-16", "the script does it otherwise now")
	inFolder, err := filepath.Glob("primed/postgres/*")
	require.NoError(t, err)
	require.Len(t, inFolder, len(p.Files), "a file of the folder is not part of the recipe")
}

// TestDescribePrimed compares a primed container with the plain one: the same server with the same means, and fewer rights.
func TestDescribePrimed(t *testing.T) {
	t.Parallel()
	e := engines.Postgres()
	for _, memory := range []int64{0, 256 << 20, 2 << 30} {
		order := engines.Order{Image: "x", Password: agentPassword, AdminPassword: adminPassword, Memory: memory}
		plain, primed := e.Describe(order), e.Primed.Describe(order)
		require.Equal(t, plain.Cmd, primed.Cmd)
		require.Equal(t, plain.Port, primed.Port)
		require.Equal(t, plain.Shm, primed.Shm)
		require.Empty(t, primed.Caps)
		require.Len(t, primed.Tmpfs, len(plain.Tmpfs))
		for i := range plain.Tmpfs {
			require.Equal(t, plain.Tmpfs[i].Path, primed.Tmpfs[i].Path)
			require.Equal(t, plain.Tmpfs[i].Size, primed.Tmpfs[i].Size)
		}
		require.Equal(t, agentPassword, primed.Env[engines.EnvPassword])
		require.Equal(t, adminPassword, primed.Env[engines.EnvAdminPassword])
		require.Regexp(t, "^SCRAM-SHA-256[$]4096:", primed.Env["ROBOCO_SANDBOX_ADMIN_VERIFIER"])
		require.NotContains(t, strings.Join(slices.Concat(primed.Entrypoint, primed.Cmd), " "), adminPassword)
		require.NotContains(t, primed.Env, "POSTGRES_PASSWORD", "an entrypoint that finds no cluster must not make one")
	}
}

// A cluster that was made in advance is made as a plain start makes it, but for the way in over the socket.
func TestPrimeScriptMakesThePlainCluster(t *testing.T) {
	t.Parallel()
	e := engines.Postgres()
	env := e.Describe(engines.Order{}).Env
	args := strings.ReplaceAll(env["POSTGRES_INITDB_ARGS"], "--auth=scram-sha-256", "--auth-host=scram-sha-256 --auth-local=peer")
	require.NotEqual(t, env["POSTGRES_INITDB_ARGS"], args)
	script := e.Primed.Files["prime.sh"]
	require.Contains(t, script, "export POSTGRES_INITDB_ARGS='"+args+"'\n")
	require.Contains(t, script, "export TZ="+env["TZ"]+"\n")
	require.Contains(t, script, "root=/var/lib/postgresql\n")
	require.Equal(t, "/var/lib/postgresql/wal", env["POSTGRES_INITDB_WALDIR"])
}
