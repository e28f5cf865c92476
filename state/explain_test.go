package state

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestExplain(t *testing.T) {
	pg := func(code string) error { return &pgconn.PgError{Code: code, Message: "m"} }
	for title, c := range map[string]struct {
		err         error
		unavailable bool
	}{
		"cut off":               {io.ErrUnexpectedEOF, true},
		"out of time":           {context.DeadlineExceeded, true},
		"rolled back at commit": {pgx.ErrTxCommitRollback, true},
		"connection exception":  {pg("08006"), true},
		"too many connections":  {pg("53300"), true},
		"disk full":             {pg("53100"), true},
		"shutting down":         {pg("57P01"), true},
		"starting up":           {pg("57P03"), true},
		"statement timeout":     {pg("57014"), true},
		"io error":              {pg("58030"), true},
		"deadlock":              {pg("40P01"), true},
		"a standby":             {pg("25006"), true},
		"undefined table":       {pg("42P01"), false},
		"check violation":       {pg("23514"), false},
		"may not":               {pg("42501"), false},
	} {
		err := explain(context.Background(), "do it", c.err)
		require.ErrorIs(t, err, c.err, title)
		require.ErrorContains(t, err, "do it")
		require.Equal(t, c.unavailable, errors.Is(err, ErrUnavailable), title)
	}
	require.NoError(t, explain(context.Background(), "do it", nil))
}

// TestNormalizationSettles: what was stored can be stored again and stays as it is.
func TestNormalizationSettles(t *testing.T) {
	c := Catalog{
		Services: []string{"postgres", "redis", "mongo"},
		Features: map[string][]string{"postgres": {"a", "b", "c"}, "redis": {"x", "y"}},
	}
	rapid.Check(t, func(t *rapid.T) {
		in := Project{
			Slug:     "p",
			Services: rapid.SliceOf(rapid.SampledFrom(c.Services)).Draw(t, "services"),
			Extensions: map[string][]string{
				"postgres": rapid.SliceOf(rapid.SampledFrom(c.Features["postgres"])).Draw(t, "postgres"),
				"redis":    rapid.SliceOf(rapid.SampledFrom(c.Features["redis"])).Draw(t, "redis"),
			},
		}
		once, err := c.project(in)
		require.NoError(t, err)
		twice, err := c.project(once)
		require.NoError(t, err)
		require.Equal(t, once, twice)
		for _, s := range c.Services {
			require.Equal(t, slices.Contains(in.Services, s), slices.Contains(once.Services, s))
			require.Equal(t, len(in.Extensions[s]) > 0, len(once.Extensions[s]) > 0)
			require.True(t, slices.IsSorted(once.Extensions[s]))
		}
	})
}
