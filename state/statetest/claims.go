package statetest

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/state"
)

func claim(id string) state.Claim {
	return state.Claim{
		ContainerID: id, RequestID: requestID(), Agent: "be-dev-1", Engine: "postgres", Host: "h1", Task: "T-1", Project: "shop",
		Owner: "c@1", Born: "1-0", Epoch: "7", ClaimedAt: time.Date(2026, 5, 6, 7, 8, 9, 123456000, time.UTC),
	}
}

func claims(t *testing.T, s state.Store) {
	ctx := background(t)
	get := func(id string) state.Claim {
		t.Helper()
		found, err := s.Claims(ctx, []string{id})
		require.NoError(t, err)
		require.Len(t, found, 1, "%q", id)
		return found[id]
	}
	nobodys := func(ids ...string) {
		t.Helper()
		found, err := s.Claims(ctx, ids)
		require.NoError(t, err)
		require.Empty(t, found)
	}
	nobodys(append(nasty(), "", "unknown", "\x00", "\xff")...)
	first := claim("first-pg")
	require.NoError(t, s.RecordClaim(ctx, first))
	require.Equal(t, first, get(first.ContainerID), "every field comes back")
	nobodys(strings.TrimSuffix(first.ContainerID, "pg"), first.RequestID) // neither by a prefix nor by another field's value

	t.Run("the first stands", func(t *testing.T) {
		second := claim(first.ContainerID)
		second.Agent, second.Task, second.Owner, second.Epoch = "be-dev-2", "T-2", "lease", "8"
		require.ErrorIs(t, s.RecordClaim(ctx, second), state.ErrClaimed)
		second.Agent = first.Agent
		require.ErrorIs(t, s.RecordClaim(ctx, second), state.ErrClaimed, "another run's")
		require.NoError(t, s.RecordClaim(ctx, first), "the same again")
		require.Equal(t, first, get(first.ContainerID))
	})

	t.Run("the first of many at once", func(t *testing.T) {
		var won atomic.Int32
		together(t, func(i int) error {
			c := claim("contended")
			c.Agent, c.Owner = fmt.Sprint("agent-", i), fmt.Sprint("owner-", i)
			err := s.RecordClaim(ctx, c)
			if errors.Is(err, state.ErrClaimed) {
				return nil
			}
			won.Add(1)
			return err
		})
		require.EqualValues(t, 1, won.Load())
		c := get("contended")
		require.Equal(t, strings.TrimPrefix(c.Agent, "agent-"), strings.TrimPrefix(c.Owner, "owner-"), "all of one")
	})

	t.Run("many", func(t *testing.T) {
		other := claim("other")
		other.Agent = "be-dev-2"
		require.NoError(t, s.RecordClaim(ctx, other))
		for title, c := range map[string]struct {
			ids  []string
			want map[string]state.Claim
		}{
			"none":    {nil, map[string]state.Claim{}},
			"unknown": {[]string{"unknown", "", "\x00", "\xff"}, map[string]state.Claim{}},
			"some":    {[]string{"other", "\x00", "first-pg", "unknown", "other"}, map[string]state.Claim{"other": other, "first-pg": first}},
		} {
			got, err := s.Claims(ctx, c.ids)
			require.NoError(t, err)
			require.Equal(t, c.want, got, title)
		}
	})

	t.Run("times", func(t *testing.T) {
		c := claim("zoned")
		c.ClaimedAt = time.Date(2026, 10, 25, 2, 30, 0, 999_999_999, time.FixedZone("x", -7*3600))
		require.NoError(t, s.RecordClaim(ctx, c))
		require.Equal(t, c.ClaimedAt.UTC().Truncate(time.Microsecond), get("zoned").ClaimedAt)
		c = claim("now")
		c.ClaimedAt = time.Time{}
		require.NoError(t, s.RecordClaim(ctx, c))
		stored(t, get("now").ClaimedAt)
	})

	t.Run("texts are data", func(t *testing.T) {
		for _, text := range nasty() {
			c := claim(text)
			c.Agent, c.Engine, c.Task, c.Owner, c.Host = text, text, text, text, text
			require.NoError(t, s.RecordClaim(ctx, c))
			require.Equal(t, c, get(text))
			got, err := s.Claims(ctx, []string{text})
			require.NoError(t, err)
			require.Equal(t, map[string]state.Claim{text: c}, got)
		}
		c := claim("unstorable")
		c.Owner, c.Task = "a\x00b", "\xff"
		require.NoError(t, s.RecordClaim(ctx, c))
		require.Equal(t, "a\uFFFDb", get("unstorable").Owner)
		require.Equal(t, "\uFFFD", get("unstorable").Task)
	})

	refused(t, s.RecordClaim(ctx, claim("")), "container_id")
}
