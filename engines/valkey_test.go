package engines

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// example: engines/valkey.go

// Valkey is the valkey engine: one more file in this folder.
func Valkey() Engine {
	noFeatures := func(_ context.Context, _ Access, wanted []string) error { return onlyAllowed("valkey", nil, wanted) }
	return Engine{
		Name:        "valkey",
		Short:       "valkey",
		Bare:        "valkey/valkey:8-alpine",
		Port:        6379,
		ReadyWithin: 15 * time.Second,
		Describe:    describeValkey,
		Up:          pingRedis, // it speaks Redis's protocol
		Activate:    noFeatures,
		Verify:      noFeatures,
		Probe:       pingRedis,
		URL: func(c Credentials) string {
			u := url.URL{Scheme: "redis", User: url.UserPassword("", c.Password), Host: net.JoinHostPort(c.Host, strconv.Itoa(c.Port)), Path: "/0"}
			return u.String()
		},
		Env: func(c Credentials) map[string]string {
			return withoutEmpty(map[string]string{
				"ROBOCO_TEST_VALKEY_HOST":     c.Host,
				"ROBOCO_TEST_VALKEY_PORT":     strconv.Itoa(c.Port),
				"ROBOCO_TEST_VALKEY_PASSWORD": c.Password,
			})
		},
	}
}

func describeValkey(o Order) Spec {
	config := []string{
		"requirepass $" + EnvPassword, // the shell puts it in: it stands on no command line
		`save ""`,
		fmt.Sprintf("maxmemory %d", o.part(3, 4)), // full is an error inside, before the container is full
		"maxmemory-policy noeviction",
	}
	return Spec{
		Image:      o.Image,
		Entrypoint: []string{"sh", "-c", "exec valkey-server - <<END\n" + strings.Join(config, "\n") + "\nEND\n"},
		Env:        map[string]string{EnvPassword: o.Password},
		User:       "999:1000", // the image's own, by number: the server never runs as root
		Tmpfs:      []Tmpfs{{Path: "/data", Size: o.part(1, 16), Mode: "0700", UID: 999, GID: 1000}},
		Port:       6379,
	}
}

// end of example

// The example in CONTRIBUTING.md is this file's, word for word, so it compiles and cannot rot.
func TestContributingShowsAnEngineThatCompiles(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../CONTRIBUTING.md")
	require.NoError(t, err)
	source, err := os.ReadFile("valkey_test.go")
	require.NoError(t, err)
	example := regexp.MustCompile(`(?s)// example: engines/valkey.go\n\n(.*?)\n// end of example\n`).FindSubmatch(source)
	require.NotNil(t, example)
	require.Contains(t, string(text), string(example[1]))
}

// With its line in the registry it is like every other engine.
func TestAnEngineIsAFileAndALine(t *testing.T) {
	t.Parallel()
	r := append(Builtin(), Valkey())
	e, ok := r.Lookup("valkey")
	require.True(t, ok)
	require.Equal(t, "valkey", r.Names()[len(r)-1])
	require.Empty(t, r.Allowed()["valkey"])

	const password = "0123456789abcdef0123456789abcdef"
	spec := e.Describe(Order{Image: e.Image(nil), Password: password, Memory: 512 << 20})
	require.Equal(t, "valkey/valkey:8-alpine", spec.Image)
	require.Equal(t, password, spec.Env[EnvPassword])
	require.NotContains(t, strings.Join(append(spec.Entrypoint, spec.Cmd...), " "), password)
	require.Contains(t, spec.Entrypoint[2], fmt.Sprintf("maxmemory %d", 384<<20))
	c := e.Credentials("roboco-sandbox-valkey-a", 6379, password)
	require.Equal(t, "redis://:"+password+"@roboco-sandbox-valkey-a:6379/0", c.URL)
	require.Len(t, e.Env(c), 3)
	require.ErrorContains(t, e.Activate(t.Context(), Access{}, []string{"json"}), "json")
}
