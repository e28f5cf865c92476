package events_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/events/eventstest"
)

// However many call at once, plainly and in pipelines, a process has few connections: a gateway promises under 20 for all that
// it does. The library has a pool for pipelines besides the one whose size it is told.
func TestManyCallersShareFewConnections(t *testing.T) {
	t.Parallel()
	const most, callers, rounds = 20, 200, 20
	addr, _ := eventstest.StartOwnRedis(t)
	calls, blocking, err := events.Open("redis://" + addr)
	require.NoError(t, err)
	defer func() { require.NoError(t, calls.Close()); require.NoError(t, blocking.Close()) }()
	ctx := context.Background()
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range rounds { // what fails under load is not of interest here
				_ = blocking.Ping(ctx).Err()
				_ = calls.Ping(ctx).Err()
				_, _ = calls.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Ping(ctx).Err() })
			}
		})
	}
	all.Wait()
	list, err := calls.ClientList(ctx).Result()
	require.NoError(t, err)
	require.Less(t, strings.Count(list, "\n"), most, list)
}
