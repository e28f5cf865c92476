package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/events"
)

// The users that compose makes may do what the code says they may, and no more.
func TestACLFileIsWhatTheCodeSays(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../scripts/redis.acl")
	require.NoError(t, err)
	users := map[string]string{}
	for line := range strings.Lines(string(text)) {
		words := strings.SplitN(strings.TrimPrefix(strings.TrimSpace(line), "# "), " ", 3)
		if words[0] == "user" {
			users[words[1]] = words[2]
		}
	}
	rules := func(password string, rules []string) string { return password + " " + strings.Join(rules, " ") }
	require.Equal(t, map[string]string{
		"default":       "off",
		"worker":        rules("on #@WORKER@", events.WorkerACL("@CELL@")),
		"gateway":       rules("on #@GATEWAY@", events.GatewayACL("@CELL@")),
		"choreographer": rules("@CHOREOGRAPHER@", events.ChoreographerACL("@CELL@")),
		"agent-@SLUG@":  rules("on #@AGENT@", events.ReaderACL("@CELL@", "@SLUG@")),
	}, users)
}
