package events_test

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// again sends the calls of one script twice, as the client does when the first answer is lost on its way.
type again struct {
	names map[string]string
	name  string
}

func twice(names map[string]string, name string) redis.Hook { return again{names, name} }

func (again) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h again) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) > 1 && cmd.Name() == "evalsha" {
			if sum, ok := args[1].(string); ok && h.names[sum] == h.name {
				_ = next(ctx, cmd)
			}
		}
		return next(ctx, cmd)
	}
}

func (again) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
