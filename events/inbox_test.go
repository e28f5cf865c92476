package events

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// rings says that a bell has rung, and takes it.
func rings(bell <-chan struct{}) bool {
	select {
	case <-bell:
		return true
	default:
		return false
	}
}

// A request that is expected has its bell before it is published: what rings it before anybody listens is not lost.
func TestExpectedBell(t *testing.T) {
	t.Parallel()
	nobody := redis.NewClient(&redis.Options{})
	t.Cleanup(func() { _ = nobody.Close() })
	b := New(nobody, nobody, Config{})

	b.Expect("gw", "r-1")
	_, expected, stop := b.inbox.listen("r-1")
	require.False(t, expected, "nobody reads the notices of this gateway")
	stop()

	b.inbox.serve("gw", 1)
	b.Expect("gw", "r-1")
	b.inbox.ring("r-1")
	bell, expected, stop := b.inbox.listen("r-1")
	require.True(t, expected)
	require.True(t, rings(bell), "it rang before")
	other, expected, stopOther := b.inbox.listen("r-1")
	require.False(t, expected, "only the first follows from the start")
	b.inbox.ring("r-1")
	require.True(t, rings(bell))
	require.True(t, rings(other))
	b.Expect("gw", "r-2")
	b.inbox.ringAll()
	require.True(t, rings(bell))
	require.True(t, rings(other))
	last, _, stopLast := b.inbox.listen("r-2")
	require.True(t, rings(last))
	for _, f := range []func(){stop, stopOther, stopLast, b.Expect("gw", "r-3")} {
		f()
	}
	require.Empty(t, b.inbox.waiting)
	require.Empty(t, b.inbox.expected)
}
