package docker_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/engines"
)

// What the label does not tell is looked up, and what has gone meanwhile counts for nothing.
func TestCapacitySumsTheLimits(t *testing.T) {
	old, gone := strings.Repeat("b", 64), strings.Repeat("c", 64)
	r := faulty(t, func(w http.ResponseWriter, q *http.Request) {
		switch {
		case strings.HasSuffix(q.URL.Path, "/containers/json"):
			_, _ = w.Write([]byte(`[{"Id":"` + strings.Repeat("a", 64) + `","Labels":{"roboco.sandbox":"1","roboco.sandbox.memory":"1000"}},
				{"Id":"` + old + `","Labels":{"roboco.sandbox":"1"}},{"Id":"` + gone + `","Labels":{"roboco.sandbox.memory":"much"}}]`))
		case strings.Contains(q.URL.Path, old):
			_, _ = w.Write([]byte(`{"Id":"` + old + `","HostConfig":{"Memory":500}}`))
		default:
			http.Error(w, `{"message":"No such container"}`, http.StatusNotFound)
		}
	})
	has, err := r.Capacity(t.Context())
	require.NoError(t, err)
	require.Equal(t, engines.Capacity{Committed: 1500}, has)
}

func TestCapacityOfTheEngine(t *testing.T) {
	b := onDocker(t)
	l := b.launch("counted", "sleep")
	id := b.start(t, l)
	info, err := b.api.ContainerInspect(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, strconv.FormatInt(info.HostConfig.Memory, 10), info.Config.Labels["roboco.sandbox.memory"])
	has, err := b.Capacity(t.Context())
	require.NoError(t, err)
	require.Positive(t, has.CPUs)
	require.Greater(t, has.Memory, int64(64<<20))
	require.GreaterOrEqual(t, has.Committed, info.HostConfig.Memory)
}
