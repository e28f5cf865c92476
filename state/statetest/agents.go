package statetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/state"
)

func runAgents(t *testing.T, open Open) {
	s := opened(t, open)
	ctx := background(t)

	made, err := s.CreateAgent(ctx, "be-dev-1", "developer", sum("one"))
	require.NoError(t, err)
	require.Equal(t, state.Agent{Slug: "be-dev-1", Role: "developer", CreatedAt: made.CreatedAt}, made)
	stored(t, made.CreatedAt)

	known := func(token string, want state.Agent) {
		t.Helper()
		got, err := s.AgentByToken(ctx, sum(token))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	unknown := func(hash []byte) {
		t.Helper()
		got, err := s.AgentByToken(ctx, hash)
		require.ErrorIs(t, err, state.ErrNotFound)
		require.Zero(t, got)
	}
	known("one", made)
	unknown(sum("two"))
	for _, short := range [][]byte{nil, {}, sum("one")[:31], append(sum("one"), 0), []byte("one")} {
		unknown(short)
	}

	t.Run("a name in use is taken", func(t *testing.T) {
		_, err := s.CreateAgent(ctx, "be-dev-1", "qa", sum("other"))
		require.ErrorIs(t, err, state.ErrTaken)
		require.ErrorContains(t, err, "be-dev-1")
		_, err = s.CreateAgent(ctx, "be-dev-1", "developer", sum("one"))
		require.ErrorIs(t, err, state.ErrTaken, "the same call again")
		known("one", made)
		unknown(sum("other"))
	})

	t.Run("what is refused", func(t *testing.T) {
		for _, role := range append(nasty(), "", "Developer", "root", "\x00") {
			_, err := s.CreateAgent(ctx, "bad", role, sum("bad"))
			invalid := refused(t, err, "role")
			require.Equal(t, []string{"choreographer", "developer", "documenter", "operator", "qa"}, invalid.Allowed)
		}
		for _, hash := range [][]byte{nil, {}, sum("bad")[:31], []byte("the token itself")} {
			_, err := s.CreateAgent(ctx, "bad", "qa", hash)
			refused(t, err, "token")
			require.NotContains(t, err.Error(), "the token itself")
			_, err = s.SetToken(ctx, "be-dev-1", hash)
			refused(t, err, "token")
		}
		_, err := s.CreateAgent(ctx, "thief", "operator", sum("one"))
		refused(t, err, "token")
		known("one", made)
	})

	t.Run("a new token ends the old one", func(t *testing.T) {
		got, err := s.SetToken(ctx, "be-dev-1", sum("two"))
		require.NoError(t, err)
		require.Equal(t, made, got)
		unknown(sum("one"))
		known("two", made)
		_, err = s.SetToken(ctx, "be-dev-1", sum("two"))
		require.NoError(t, err, "the same again")
		known("two", made)
	})

	t.Run("revoked, and alive again", func(t *testing.T) {
		require.NoError(t, s.RevokeAgent(ctx, "be-dev-1"))
		require.NoError(t, s.RevokeAgent(ctx, "be-dev-1"), "again")
		unknown(sum("two"))
		_, err := s.CreateAgent(ctx, "be-dev-1", "developer", sum("three"))
		require.ErrorIs(t, err, state.ErrTaken, "a revoked one's name stays taken")
		all, err := s.Agents(ctx)
		require.NoError(t, err)
		require.Len(t, all, 1)
		require.True(t, all[0].Revoked)
		one, err := s.Agent(ctx, "be-dev-1")
		require.NoError(t, err)
		require.Equal(t, all[0], one)
		got, err := s.SetToken(ctx, "be-dev-1", sum("four"))
		require.NoError(t, err)
		require.False(t, got.Revoked)
		known("four", made)
		unknown(sum("two"))
	})

	t.Run("another's token", func(t *testing.T) {
		qa, err := s.CreateAgent(ctx, "a-qa", "qa", sum("mine"))
		require.NoError(t, err)
		_, err = s.SetToken(ctx, "be-dev-1", sum("mine"))
		refused(t, err, "token")
		known("mine", qa)
		known("four", made)
	})

	t.Run("nobody", func(t *testing.T) {
		for _, slug := range append(nasty(), "", "nobody", "\x00") {
			_, err := s.SetToken(ctx, slug, sum("x"))
			require.ErrorIs(t, err, state.ErrNotFound, "%q", slug)
			require.ErrorIs(t, s.RevokeAgent(ctx, slug), state.ErrNotFound, "%q", slug)
			_, err = s.Agent(ctx, slug)
			require.ErrorIs(t, err, state.ErrNotFound, "%q", slug)
		}
	})

	t.Run("every role, by slug", func(t *testing.T) {
		for _, role := range []string{"operator", "documenter", "choreographer"} {
			_, err := s.CreateAgent(ctx, "z-"+role, role, sum(role))
			require.NoError(t, err)
		}
		all, err := s.Agents(ctx)
		require.NoError(t, err)
		var slugs []string
		for _, a := range all {
			slugs = append(slugs, a.Slug)
		}
		require.Equal(t, []string{"a-qa", "be-dev-1", "z-choreographer", "z-documenter", "z-operator"}, slugs)
	})
}
