package failpoint_test

import (
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/state"
	"github.com/roboco/sandboxd/worker"
)

// exceptions are calls that a process does not make, or not to any effect, each with the reason.
func exceptions(process string) map[string]string {
	if process == "worker" {
		return map[string]string{
			"redis.sandbox":        "only gateways read whole records",
			"redis.retry":          "only operators put dead letters back, by a gateway",
			"redis.announce":       "only gateways change projects",
			"redis.stumble":        "for a handler that panics, and none is known to",
			"state.setflag":        "only operators switch, by a gateway",
			"state.requests":       "only gateways show the history",
			"engine.removederived": "nobody gives an image another content meanwhile",
		}
	}
	return map[string]string{
		"state.close":          "nothing that lasts depends on it",
		"state.unpublished":    "janitors publish what is owed",
		"state.setowned":       "workers see who lives",
		"state.recordrequests": "workers write the history",
		"state.prunerequests":  "janitors prune it",
		"state.recordclaim":    "workers claim",
		"state.claims":         "workers ask what was claimed",
	}
}

// requireComplete demands that every call which a process can make was seen before and after: each script of the bus, each
// method of the container engine and of the durable store. A step that no scenario takes would otherwise go unnoticed.
func requireComplete(t *testing.T, process string, passed map[string]bool) {
	t.Helper()
	var want []string
	methods := func(prefix string, of reflect.Type) {
		for m := range of.Methods() {
			want = append(want, prefix+strings.ToLower(m.Name))
		}
	}
	scripts := func(except ...string) {
		nobody := redis.NewClient(&redis.Options{})
		defer func() { _ = nobody.Close() }()
		for _, name := range events.New(nobody, nobody, events.Config{}).ScriptNames() {
			if !slices.Contains(except, name) {
				want = append(want, "redis."+name)
			}
		}
	}
	if process == "worker" {
		scripts()
		methods("engine.", reflect.TypeFor[worker.Runtime]())
		methods("state.", reflect.TypeFor[worker.Store]())
	} else {
		want = append(want, "redis.publish", "redis.sandbox", "redis.announce")
		methods("state.", reflect.TypeFor[state.Store]())
	}
	require.False(t, passed["redis.unknown-script.before"], "a script without a name was called")
	but := exceptions(process)
	for _, name := range want {
		if but[name] != "" {
			require.False(t, passed[name+".before"], "%s is passed after all, though %s", name, but[name])
			continue
		}
		require.True(t, passed[name+".before"] && passed[name+".after"], "no scenario passes %s: add one, or say in exceptions why not", name)
	}
}

// Without the tag nothing of it is compiled.
func TestTheProductHasNoFailpoints(t *testing.T) {
	t.Parallel()
	for tag, has := range map[string]bool{"": false, "failpoints": true} {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-tags", tag, "-deps", "..").CombinedOutput()
		require.NoError(t, err, string(out))
		require.Equal(t, has, strings.Contains(string(out), "/failpoint"), "tag %q", tag)
		require.Equal(t, has, strings.Contains(string(out), "/workertest"), "tag %q", tag)
	}
}
