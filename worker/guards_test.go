package worker

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/state"
)

func guardWorker() *Worker { return New(Config{Engines: engines.Builtin()}) }

func TestAdmit(t *testing.T) {
	t.Parallel()
	all := state.Project{Services: []string{"postgres", "redis", "mongo"}, Extensions: map[string][]string{"postgres": {"vector"}}}
	two := state.Project{Services: []string{"postgres", "redis"}, Extensions: map[string][]string{"mongo": {"gone"}}}
	left := state.Project{Services: []string{"postgres"}, Extensions: map[string][]string{"postgres": {"plpython3u"}}}
	for _, tc := range []struct {
		name      string
		project   state.Project
		q         events.Requested
		guard     int // -1: admitted
		message   []string
		remediate []string
		asked     []events.Want
	}{
		{"the whole set", all, events.Requested{}, -1, nil, nil, []events.Want{{Engine: "postgres", Features: []string{"vector"}}, {Engine: "redis"}, {Engine: "mongo"}}},
		{"a subset, in registry order", all, events.Requested{Services: []string{"mongo", "redis"}}, -1, nil, nil, []events.Want{{Engine: "redis"}, {Engine: "mongo"}}},
		{"extensions unite with the standing set", all, events.Requested{Services: []string{"postgres"}, Extensions: map[string][]string{"postgres": {"uuid-ossp", "vector"}}}, -1, nil, nil, []events.Want{{Engine: "postgres", Features: []string{"uuid-ossp", "vector"}}}},
		{"a standing entry for a service that is not opted in is ignored", two, events.Requested{}, -1, nil, nil, []events.Want{{Engine: "postgres"}, {Engine: "redis"}}},
		{"a service outside", two, events.Requested{Services: []string{"mongo", "oracle", "redis"}}, 4, []string{"mongo, oracle"}, []string{"postgres, redis"}, nil},
		{"extensions for a service outside", two, events.Requested{Extensions: map[string][]string{"mongo": {"x"}}}, 5, []string{"mongo"}, []string{"postgres, redis", "citext, pg_trgm, postgis, uuid-ossp, vector", "bloom, json, search"}, nil},
		{"an extension outside the allowlist", two, events.Requested{Extensions: map[string][]string{"postgres": {"vector", "plperlu", "adminpack"}}}, 6, []string{"adminpack, plperlu"}, []string{"citext, pg_trgm, postgis, uuid-ossp, vector"}, nil},
		{"all of them for mongo", all, events.Requested{Extensions: map[string][]string{"mongo": {"x"}}}, 6, []string{"mongo: x"}, []string{"mongo: none"}, nil},
		{"a standing feature that has left the allowlist", left, events.Requested{}, 6, []string{"plpython3u"}, []string{"citext"}, nil},
		{"4 comes before 5 and 6", two, events.Requested{Services: []string{"mongo"}, Extensions: map[string][]string{"mongo": {"x"}, "postgres": {"y"}}}, 4, nil, nil, nil},
		{"5 comes before 6", two, events.Requested{Extensions: map[string][]string{"mongo": {"x"}, "postgres": {"y"}}}, 5, nil, nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			a, refusal := guardWorker().admit(tc.project, tc.q)
			if tc.guard < 0 {
				require.Nil(t, refusal)
				require.Len(t, a.set, len(tc.project.Services), "the whole opted set is provisioned")
				require.Len(t, a.asked, len(tc.asked))
				for i, want := range tc.asked {
					require.Equal(t, want.Engine, a.asked[i].Engine)
					require.ElementsMatch(t, want.Features, a.asked[i].Features)
				}
				return
			}
			require.NotNil(t, refusal)
			require.Equal(t, tc.guard, refusal.Guard)
			require.False(t, refusal.Retryable)
			require.NotEmpty(t, refusal.Message)
			require.NotEmpty(t, refusal.Remediate)
			for _, s := range tc.message {
				require.Contains(t, refusal.Message, s)
			}
			for _, s := range tc.remediate {
				require.Contains(t, refusal.Remediate, s)
			}
		})
	}
}

// Advice is given once, and does not speak against what is said of trying again.
func TestClassifyAdvises(t *testing.T) {
	t.Parallel()
	pg, _ := engines.Builtin().Lookup("postgres")
	for _, tc := range []struct {
		err            error
		says, saysNone string
	}{
		{&imageError{pg, pg.Bare, &engines.PullError{Image: pg.Bare, Cause: errors.New("denied")}}, "ROBOCO_SANDBOX_POSTGRES_IMAGE", "in a moment"},
		{&imageError{pg, pg.Feature, &engines.PullError{Image: pg.Feature, Retryable: true, Cause: errors.New("429")}}, "ROBOCO_SANDBOX_POSTGRES_FEATURE_IMAGE", "will not help"},
		{&engines.ExitError{Engine: "mongo", ExitCode: 137, OOMKilled: true}, "ROBOCO_SANDBOX_MEMORY", "stopped by itself"},
		{&engines.ExitError{Engine: "mongo", ExitCode: 1}, "stopped by itself", "in a moment"},
	} {
		r := classify(tc.err)
		require.Contains(t, r.Remediate, tc.says)
		require.NotContains(t, r.Remediate, tc.saysNone)
	}
}

// wordless is an error without text.
type wordless struct{}

func (wordless) Error() string { return "" }

func TestClassify(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name      string
		err       error
		retryable bool
		message   string
	}{
		{"a pull that may succeed later", &engines.PullError{Image: "mongo:8", Retryable: true, Cause: errors.New("429")}, true, "mongo:8"},
		{"a pull that never will", &engines.PullError{Image: "no/such", Cause: errors.New("denied")}, false, "no/such"},
		{"an exit", fmt.Errorf("postgres: %w", &engines.ExitError{Engine: "postgres", ExitCode: 3, LogTail: "no space"}), false, "code 3"},
		{"an exit for lack of memory", &engines.ExitError{Engine: "mongo", ExitCode: 137, OOMKilled: true}, true, "lack of memory"},
		{"the container engine is away", fmt.Errorf("inspect: %w", engines.ErrUnavailable), true, "container engine"},
		{"the state store is away", fmt.Errorf("read: %w", state.ErrUnavailable), true, "Postgres"},
		{"not ready", fmt.Errorf("redis was %w", errNotReady), true, "not ready"},
		{"a stranger", &strangerError{"roboco-sandbox-pg-x"}, false, "roboco-sandbox-pg-x"},
		{"anything else", errors.New("no such file"), false, "no such file"},
		{"a cause without text is named by its type", wordless{}, false, "worker.wordless"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := classify(tc.err)
			require.Equal(t, 8, r.Guard)
			require.Equal(t, tc.retryable, r.Retryable)
			require.Contains(t, r.Message, tc.message)
			require.NotEmpty(t, r.Remediate)
			require.Equal(t, tc.retryable, r.RetryAfterMS > 0)
		})
	}
}

func TestNewerComparesEpochsAsNumbers(t *testing.T) {
	t.Parallel()
	require.True(t, newer("10", "9"))
	require.True(t, newer("1764500000000001", "1764500000000000"))
	require.False(t, newer("9", "9"))
	require.False(t, newer("", "9"))
}

func TestBlankTakesEverySecretOut(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a ******** b ********", blank("a s3 b t4", "s3", "", "t4"))
}

// Where the servers behind are, and as whom they are asked, is nothing for an agent.
func TestClassifyTellsNoAddress(t *testing.T) {
	t.Parallel()
	cause := errors.New("failed to connect to `user=sandboxd database=state`: 10.1.2.3:5432: refused")
	for _, away := range []error{state.ErrUnavailable, engines.ErrUnavailable} {
		r := classify(fmt.Errorf("read project shop: %w: %w", away, cause))
		require.NotContains(t, r.Message, "10.1.2.3")
		require.NotContains(t, r.Message, "user=")
		require.True(t, r.Retryable)
	}
}
