package failpoint

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by it
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Hook gives every command and pipeline of a client its two points: redis.xreadgroup.before, redis.hgetall+time.after; a
// script goes by its name in scripts (by SHA-1). What brings an entry to work on has its own name afterwards:
// redis.xreadgroup.entry.after. The call of a script that the server does not know yet is one call with the one that loads it.
func (p *Points) Hook(scripts map[string]string) redis.Hook { return hook{p, scripts} }

type hook struct {
	p       *Points
	scripts map[string]string
}

// DialHook leaves dialling alone: a connection that was made is no step.
func (hook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook surrounds one command.
func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		name := "redis." + h.name(cmd)
		if cmd.Name() != "eval" {
			h.p.Pass(name + ".before")
		}
		err := next(ctx, cmd)
		if !redis.HasErrorPrefix(err, "NOSCRIPT") {
			h.p.Pass(name + brought(cmd) + ".after")
		}
		return err
	}
}

// ProcessPipelineHook surrounds a pipeline as one call; commands repeated in it are named once.
func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var names []string
		for _, c := range cmds {
			if n := h.name(c); !slices.Contains(names, n) {
				names = append(names, n)
			}
		}
		return h.p.around("redis."+strings.Join(names, "+"), func() error { return next(ctx, cmds) })
	}
}

// name is a command's name, or that of the script which it runs.
func (h hook) name(cmd redis.Cmder) string {
	args := cmd.Args()
	if n := cmd.Name(); n != "eval" && n != "evalsha" || len(args) < 2 {
		return strings.ReplaceAll(n, " ", "-")
	}
	sum := fmt.Sprint(args[1])
	if cmd.Name() == "eval" {
		s := sha1.Sum([]byte(sum)) //nolint:gosec // as above
		sum = hex.EncodeToString(s[:])
	}
	if name := h.scripts[sum]; name != "" {
		return name
	}
	return "unknown-script"
}

// brought tells a read that gave the consumer work from one that found nothing.
func brought(cmd redis.Cmder) string {
	n := 0
	switch c := cmd.(type) {
	case *redis.XStreamSliceCmd:
		n = len(c.Val())
	case *redis.XAutoClaimCmd:
		found, _ := c.Val()
		n = len(found)
	}
	if n > 0 {
		return ".entry"
	}
	return ""
}
