package engines_test

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/engines"
)

const (
	agentPassword = "0123456789abcdef0123456789abcdef"
	adminPassword = "fedcba9876543210fedcba9876543210"
)

// TestRegistry holds every engine to what the rest of the program takes for granted.
func TestRegistry(t *testing.T) {
	t.Parallel()
	reg := engines.Builtin()
	require.Equal(t, []string{"postgres", "redis", "mongo"}, reg.Names())
	require.Equal(t, map[string][]string{
		"postgres": {"citext", "pg_trgm", "postgis", "uuid-ossp", "vector"},
		"redis":    {"bloom", "json", "search"},
		"mongo":    {},
	}, reg.Allowed())

	shorts, images, ports := map[string]bool{}, map[string]bool{}, map[int]bool{}
	for _, e := range reg {
		require.False(t, shorts[e.Short], "short name %s twice", e.Short)
		require.False(t, ports[e.Port], "port %d twice", e.Port)
		shorts[e.Short], ports[e.Port] = true, true
		for _, image := range []string{e.Bare, e.Feature} {
			require.False(t, image != "" && images[image], "image %s twice", image)
			images[image] = true
		}
		found, ok := reg.Lookup(e.Name)
		require.True(t, ok)
		require.Equal(t, e.Name, found.Name)
	}
	_, ok := reg.Lookup("oracle")
	require.False(t, ok)
}

// TestEngineIsComplete looks at each engine by itself.
func TestEngineIsComplete(t *testing.T) {
	t.Parallel()
	for _, e := range engines.Builtin() {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			require.NotEmpty(t, e.Short)
			require.NotEmpty(t, e.Bare)
			require.Positive(t, e.Port)
			require.Positive(t, e.ReadyWithin)
			require.True(t, slices.IsSorted(e.Features), "features are sorted")
			require.Equal(t, slices.Compact(slices.Clone(e.Features)), e.Features, "features are named once")
			require.Equal(t, len(e.Features) > 0, e.Feature != "", "features need an image, and an image features")
			require.Equal(t, e.Bare, e.Image(nil))
			if len(e.Features) > 0 {
				require.Equal(t, e.Feature, e.Image(e.Features[:1]))
			}
			require.NotNil(t, e.Describe)
			require.NotNil(t, e.Up)
			require.NotNil(t, e.Activate)
			require.NotNil(t, e.Verify)
			require.NotNil(t, e.Probe)
		})
	}
}

// TestActivateKeepsToTheAllowlist gives no address to dial: what is not allowed is refused before that.
func TestActivateKeepsToTheAllowlist(t *testing.T) {
	t.Parallel()
	for _, e := range engines.Builtin() {
		err := e.Activate(t.Context(), engines.Access{}, append(slices.Clone(e.Features), "file_fdw", `x"; DROP ROLE sandbox`))
		require.ErrorContains(t, err, `not allowed: file_fdw, x"; DROP ROLE sandbox`, e.Name)
	}
}

// TestCredentials looks at what an agent is given.
func TestCredentials(t *testing.T) {
	t.Parallel()
	wantURL := map[string]string{
		"postgres": "postgres://sandbox:" + agentPassword + "@db:40001/sandbox",
		"redis":    "redis://:" + agentPassword + "@db:40001/0",
		"mongo":    "mongodb://sandbox:" + agentPassword + "@db:40001/sandbox?authSource=admin",
	}
	wantEnv := map[string]map[string]string{
		"postgres": {"DB_HOST": "db", "DB_PORT": "40001", "DB_USER": "sandbox", "DB_PASSWORD": agentPassword, "DB_ADMIN_DB": "sandbox"},
		"redis":    {"REDIS_HOST": "db", "REDIS_PORT": "40001", "REDIS_PASSWORD": agentPassword},
		"mongo": {
			"MONGO_HOST": "db", "MONGO_PORT": "40001", "MONGO_USER": "sandbox", "MONGO_PASSWORD": agentPassword,
			"MONGO_AUTH_DB": "admin",
		},
	}
	for _, e := range engines.Builtin() {
		c := e.Credentials("db", 40001, agentPassword)
		u, err := url.Parse(c.URL)
		require.NoError(t, err)
		require.Equal(t, "db:"+strconv.Itoa(40001), u.Host)
		require.Equal(t, wantURL[e.Name], c.URL)
		env := map[string]string{}
		for k, v := range e.Env(c) {
			require.NotEmpty(t, v, "%s: %s", e.Name, k)
			short, ok := strings.CutPrefix(k, "ROBOCO_TEST_")
			require.True(t, ok, "%s: %s", e.Name, k)
			env[short] = v
		}
		require.Equal(t, wantEnv[e.Name], env)
		for k, v := range e.Env(engines.Credentials{}) {
			require.NotEmpty(t, v, "%s: %s, of nothing", e.Name, k)
		}
	}
}

// TestDescribe looks at every container that can be ordered, at several memory limits.
func TestDescribe(t *testing.T) {
	t.Parallel()
	for _, e := range engines.Builtin() {
		for _, features := range [][]string{nil, e.Features} {
			for _, memory := range []int64{0, 256 << 20, 512 << 20, 2 << 30} {
				order := engines.Order{Image: e.Image(features), Features: features, Password: agentPassword, AdminPassword: adminPassword, Memory: memory}
				spec := e.Describe(order)
				require.Equal(t, order.Image, spec.Image)
				require.Equal(t, e.Port, spec.Port)
				require.Equal(t, agentPassword, spec.Env[engines.EnvPassword], "adoption reads this name for every engine")
				words := strings.Join(append(slices.Clone(spec.Entrypoint), spec.Cmd...), " ")
				require.NotContains(t, words, agentPassword)
				require.NotContains(t, words, adminPassword)
				limit := memory
				if limit == 0 {
					limit = 512 << 20
				}
				require.NotEmpty(t, spec.Tmpfs, "an engine keeps nothing on a disk")
				var sum int64
				for _, m := range spec.Tmpfs {
					require.Positive(t, m.Size)
					sum += m.Size
				}
				require.Less(t, sum, limit*3/4, "a full tmpfs leaves room for the server")
				require.Less(t, spec.Shm, limit/4)
				for _, c := range spec.Caps {
					require.Contains(t, []string{"CHOWN", "SETUID", "SETGID", "DAC_OVERRIDE", "FOWNER"}, c)
				}
			}
		}
	}
	spec := engines.Postgres().Describe(engines.Order{Password: agentPassword, AdminPassword: adminPassword})
	require.Equal(t, adminPassword, spec.Env[engines.EnvAdminPassword])
	require.Equal(t, adminPassword, spec.Env["POSTGRES_PASSWORD"], "the superuser's password is not the agent's")
}
