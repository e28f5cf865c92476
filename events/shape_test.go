package events_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/roboco/sandboxd/events"
)

// What is matched by hand is what the expressions say, which an error shows to whoever sent something else.
func TestShapesAreWhatTheySay(t *testing.T) {
	t.Parallel()
	fixed := []string{"", "-", "a", "a-", "-a", "A", "ä", "a\n", "\n", "a b", "a.b", "a_b:c", "\xff", "{", "`", "@", "[", "/", strings.Repeat("a", 40), strings.Repeat("a", 41), strings.Repeat("a", 128), strings.Repeat("a", 129)}
	for i, shape := range events.Shapes {
		re := regexp.MustCompile(shape)
		agree := func(t require.TestingT, s string) {
			require.Equal(t, re.MatchString(s), events.Matches[i](s), "%q by %s", s, shape)
		}
		for _, s := range fixed {
			agree(t, s)
		}
		near := rapid.OneOf(rapid.StringMatching(`[a-zA-Z0-9._:{}/@-]{0,140}`), rapid.String(), rapid.StringMatching(`[a-z0-9-]{0,45}`))
		rapid.Check(t, func(rt *rapid.T) { agree(rt, near.Draw(rt, "text")) })
	}
}
