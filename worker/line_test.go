package worker

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A line never has more places out than there are, hands them out by ticket and rank, and loses none, whoever leaves when.
func TestLineInRandomOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		places := rapid.IntRange(1, 4).Draw(t, "places")
		l := newLine(places)
		var waiting, holding []*waiter
		granted := func(w *waiter) bool {
			select {
			case <-w.granted:
				return true
			default:
				return false
			}
		}
		pull := func(from *[]*waiter, name string) *waiter {
			at := rapid.IntRange(0, len(*from)-1).Draw(t, name)
			w := (*from)[at]
			*from = slices.Delete(*from, at, at+1)
			return w
		}
		t.Repeat(map[string]func(*rapid.T){
			"join": func(t *rapid.T) {
				waiting = append(waiting, l.join(rapid.Uint64Range(1, 6).Draw(t, "ticket"), rapid.IntRange(0, 1).Draw(t, "rank")))
			},
			"quit": func(t *rapid.T) {
				if len(waiting) == 0 {
					t.Skip("nobody waits")
				}
				w := pull(&waiting, "quitter")
				require.True(t, l.quit(w))
				require.False(t, l.quit(w))
			},
			"leave": func(t *rapid.T) {
				if len(holding) == 0 {
					t.Skip("nobody has a place")
				}
				pull(&holding, "leaver")
				l.leave()
			},
			"": func(t *rapid.T) {
				slices.SortStableFunc(waiting, func(a, b *waiter) int {
					return cmp.Or(cmp.Compare(a.ticket, b.ticket), cmp.Compare(a.rank, b.rank))
				})
				for len(waiting) > 0 && granted(waiting[0]) {
					holding = append(holding, waiting[0])
					waiting = waiting[1:]
				}
				require.LessOrEqual(t, len(holding), places)
				require.True(t, len(waiting) == 0 || len(holding) == places, "%d wait while %d of %d places are out", len(waiting), len(holding), places)
				tickets := map[uint64]bool{}
				for _, w := range waiting {
					require.False(t, granted(w), "somebody was let in before the first in line")
					tickets[w.ticket] = true
					require.Equal(t, len(tickets), l.position(w))
				}
				require.Equal(t, len(tickets), l.length())
			},
		})
	})
}

func TestLineTellsPlacesOnceAndNotTooOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(1)
		leave, err := l.take(t.Context(), 1, 0, func(int) { t.Error("there is no wait") })
		require.NoError(t, err)
		var all sync.WaitGroup
		var told []int
		var at []time.Duration
		began := time.Now()
		others := make([]context.CancelFunc, 3)
		for i := range others {
			var ctx context.Context
			ctx, others[i] = context.WithCancel(t.Context())
			all.Go(func() { _, _ = l.take(ctx, uint64(2+i), 0, func(int) {}) })
		}
		synctest.Wait()
		all.Go(func() {
			leave, err := l.take(t.Context(), 9, 0, func(p int) { told, at = append(told, p), append(at, time.Since(began)) })
			require.NoError(t, err)
			leave()
			leave() // no second place comes of it
		})
		synctest.Wait()
		time.Sleep(tellEvery / 10)
		others[0]()
		others[1]()
		time.Sleep(5 * tellEvery)
		others[2]()
		time.Sleep(2 * tellEvery)
		leave()
		all.Wait()
		require.Equal(t, []int{4, 2, 1}, told)
		require.GreaterOrEqual(t, at[1]-at[0], tellEvery*9/10)
		require.Equal(t, 1, l.free)
	})
}

func TestLineEndsWithItsContext(t *testing.T) {
	t.Parallel()
	l := newLine(0)
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	_, err := l.take(ctx, 1, 0, func(int) {})
	require.ErrorIs(t, err, why)
	require.Zero(t, l.length())
}

// A place that is granted to somebody who gives up at that moment is not lost.
func TestLineLosesNoPlace(t *testing.T) {
	t.Parallel()
	l := newLine(1)
	for range 5000 {
		leave, err := l.take(t.Context(), 1, 0, func(int) {})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		joined, over := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(over)
			if leave, err := l.take(ctx, 2, 0, func(int) { close(joined) }); err == nil {
				leave()
			}
		}()
		<-joined
		go cancel()
		leave()
		<-over
		require.Equal(t, 1, l.free)
	}
}
