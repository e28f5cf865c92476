package events

import (
	"reflect"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// Whoever watches calls go by learns the name of every script; one that was forgotten would pass unnoticed.
func TestEveryScriptHasAName(t *testing.T) {
	t.Parallel()
	nobody := redis.NewClient(&redis.Options{})
	t.Cleanup(func() { _ = nobody.Close() })
	for _, audit := range []bool{false, true} {
		names := New(nobody, nobody, Config{Audit: audit}).ScriptNames()
		require.Len(t, names, reflect.TypeFor[scripts]().NumField())
	}
}
