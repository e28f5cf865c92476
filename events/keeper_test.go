package events_test

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/events"
)

func (s *scene) keeps(host, worker string, ttl time.Duration) bool {
	s.Helper()
	keeper, err := s.bus.Keep(s.Context(), host, worker, ttl)
	require.NoError(s, err)
	return keeper
}

func (s *scene) unkeeps(host, worker string) bool {
	s.Helper()
	last, err := s.bus.Unkeep(s.Context(), host, worker)
	require.NoError(s, err)
	return last
}

func keeperTests() []test {
	return []test{
		{"keeper: one worker for each host, for as long as it asks", func(s *scene) {
			for range 2 {
				require.True(s, s.keeps("h1", me, time.Hour))
				require.False(s, s.keeps("h1", other, time.Hour))
				require.True(s, s.keeps("h2", other, time.Hour), "another host")
			}
			require.InDelta(s, time.Hour, s.rdb.PTTL(s.Context(), s.key("keeper:h1")).Val(), float64(time.Minute))
			require.InDelta(s, time.Hour, s.rdb.PTTL(s.Context(), s.key("keepers:h1")).Val(), float64(time.Minute))
		}},
		{"keeper: asking again is what keeps it", func(s *scene) {
			require.True(s, s.keeps("h1", me, time.Minute))
			require.True(s, s.keeps("h1", me, time.Hour))
			require.InDelta(s, time.Hour, s.rdb.PTTL(s.Context(), s.key("keeper:h1")).Val(), float64(time.Minute))
			require.False(s, s.keeps("h1", other, time.Minute))
			require.InDelta(s, time.Hour, s.rdb.PTTL(s.Context(), s.key("keeper:h1")).Val(), float64(time.Minute), "another's asking adds nothing")
			require.InDelta(s, time.Hour, s.rdb.PTTL(s.Context(), s.key("keepers:h1")).Val(), float64(time.Minute), "nor takes anything away")
		}},
		{"keeper: another takes over from one that has died", func(s *scene) {
			require.True(s, s.keeps("h1", me, 50*time.Millisecond))
			s.eventually(func() bool { return s.keeps("h1", other, time.Hour) }, "it is never free")
			require.False(s, s.keeps("h1", me, time.Hour), "and it comes back too late")
		}},
		{"keeper: who leaves is told whether it was the last", func(s *scene) {
			require.True(s, s.keeps("h1", me, time.Hour))
			require.False(s, s.keeps("h1", other, time.Hour))
			require.True(s, s.keeps("h2", "w3", time.Hour))
			require.False(s, s.unkeeps("h1", me), "another is there")
			require.False(s, s.unkeeps("h1", me), "still")
			require.True(s, s.keeps("h1", other, time.Hour), "free at once")
			require.True(s, s.unkeeps("h1", other))
			require.True(s, s.unkeeps("h1", other), "nobody is there")
			require.False(s, s.keeps("h2", me, time.Hour), "the other host's still is")
		}},
		{"keeper: one that leaves takes nothing from the keeper", func(s *scene) {
			require.True(s, s.keeps("h1", me, time.Hour))
			require.False(s, s.keeps("h1", other, time.Hour))
			require.False(s, s.unkeeps("h1", other), "the keeper is there")
			require.False(s, s.keeps("h1", other, time.Hour))
		}},
		{"keeper: the dead are not counted", func(s *scene) {
			require.True(s, s.keeps("h1", me, time.Hour))
			require.False(s, s.keeps("h1", other, 20*time.Millisecond))
			s.eventually(func() bool { return s.unkeeps("h1", me) }, "never the last")
		}},
	}
}

// pools is what a worker does with those of its host; of what was claimed nothing is left.
func (l *life) pools(ctx context.Context, d events.Delivery, begun events.Begun) {
	b := l.worker
	_, err := b.Keep(ctx, "h1", me, time.Minute)
	require.NoError(l, err)
	for _, id := range []string{"a" + begun.Epoch, "b" + begun.Epoch} {
		_, err = b.Stock(ctx, reds(), id)
		require.NoError(l, err)
	}
	c, _, err := b.Claim(ctx, d, begun.Epoch, "redis", []events.Pool{reds()})
	require.NoError(l, err)
	_, err = b.Claims(ctx, []string{c.ID})
	require.NoError(l, err)
	ids, err := b.ClaimedBy(ctx, agent)
	require.NoError(l, err)
	require.Equal(l, []string{c.ID}, ids)
	require.NoError(l, b.Forget(ctx, agent, c.ID))
	ids, err = b.Stocked(ctx, reds())
	require.NoError(l, err)
	f, err := b.Retire(ctx, reds(), ids[0])
	require.NoError(l, err)
	require.Equal(l, events.FateDead, f)
	_, err = b.Unkeep(ctx, "h1", me)
	require.NoError(l, err)
}
