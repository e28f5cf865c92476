package events_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/events/eventstest"
)

// hears runs ProjectChanges until the test ends, and gives what it hears. It has heard the first "" when this returns.
func (s *scene) hears(b *events.Bus) <-chan string {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	heard, ended := make(chan string, 100), make(chan error, 1)
	go func() { ended <- b.ProjectChanges(ctx, func(slug string) { heard <- slug }) }()
	s.Cleanup(func() {
		cancel()
		require.NoError(s, <-ended)
	})
	s.hearsOf(heard, "")
	return heard
}

// hearsOf demands that this is heard next.
func (s *scene) hearsOf(heard <-chan string, slug string) {
	s.Helper()
	select {
	case got := <-heard:
		require.Equal(s, slug, got)
	case <-time.After(20 * time.Second):
		require.FailNow(s, "nothing is heard", "of %q", slug)
	}
}

func projectTests() []test {
	return []test{
		{"projects: every worker hears of every change, once, and of none before", func(s *scene) {
			require.NoError(s, s.bus.AnnounceProject(s.Context(), "before"))
			one, two := s.hears(s.bus), s.hears(s.with(func(*events.Config) {}))
			for _, slug := range []string{"shop", "store", "shop"} {
				require.NoError(s, s.bus.AnnounceProject(s.Context(), slug))
			}
			for _, heard := range []<-chan string{one, two} {
				for _, slug := range []string{"shop", "store", "shop"} {
					s.hearsOf(heard, slug)
				}
				require.Empty(s, heard)
			}
		}},
		{"projects: what is kept of them is little, and lapses", func(s *scene) {
			for range 300 {
				require.NoError(s, s.bus.AnnounceProject(s.Context(), "shop"))
			}
			n, err := s.rdb.XLen(s.Context(), s.key("projects")).Result()
			require.NoError(s, err)
			require.LessOrEqual(s, n, int64(200), "trimmed by whole nodes of a hundred")
			left, err := s.rdb.PTTL(s.Context(), s.key("projects")).Result()
			require.NoError(s, err)
			require.Positive(s, left)
		}},
		{"projects: where Redis has lost the stream, any may have changed", func(s *scene) {
			require.NoError(s, s.bus.AnnounceProject(s.Context(), "before"))
			heard := s.hears(s.bus)
			require.NoError(s, s.rdb.Del(s.Context(), s.key("projects")).Err())
			s.hearsOf(heard, "")
			require.NoError(s, s.bus.AnnounceProject(s.Context(), "after"))
			s.hearsOf(heard, "after")
		}},
	}
}

// told holds a token once something was logged.
type told chan struct{}

// Write takes the line in.
func (t told) Write(line []byte) (int, error) {
	select {
	case t <- struct{}{}:
	default:
	}
	return len(line), nil
}

// Whatever was said while Redis was out of reach is made up for.
func TestProjectChangesOutliveTheirConnection(t *testing.T) {
	t.Parallel()
	s := newScene(t, eventstest.StartRedis(t), quick())
	noticed := make(told, 1)
	heard := s.hears(s.with(func(c *events.Config) { c.Log = zerolog.New(noticed) }))
	require.NoError(t, s.rdb.ACLSetUser(t.Context(), s.user, "off").Err())
	require.NoError(t, s.rdb.Do(t.Context(), "CLIENT", "KILL", "USER", s.user).Err())
	select {
	case <-noticed: // only a reader that could not read has missed anything
	case <-time.After(20 * time.Second):
		require.FailNow(t, "the reader notices nothing")
	}
	require.NoError(t, s.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: s.key("projects"), Values: []string{"project", "meanwhile"}}).Err())
	require.NoError(t, s.rdb.ACLSetUser(t.Context(), s.user, "on").Err())
	s.hearsOf(heard, "")
	require.NoError(t, s.bus.AnnounceProject(t.Context(), "shop"))
	s.hearsOf(heard, "shop")
}
