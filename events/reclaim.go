package events

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// readIdle takes over what others have left idle, and what was parked. It looks more often than an entry is parked for, so
// that who waits for a lease to end gets on soon after.
func (c *consumer) readIdle(ctx context.Context) {
	const start = "0-0"
	cursor := start // one call looks at ten entries: the next goes on from there
	var trouble backoff
	for {
		if !c.take(ctx) {
			return
		}
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), callLimit)
		found, next, err := c.bus.calls.XAutoClaim(call, &redis.XAutoClaimArgs{
			Stream: c.bus.stream(), Group: group, Consumer: c.name, MinIdle: c.bus.cfg.ClaimIdle, Start: cursor, Count: 1,
		}).Result()
		cancel()
		if err != nil {
			c.release()
			cursor = start
			c.mend(ctx, err, &trouble)
			continue
		}
		trouble.over()
		if cursor = next; len(found) > 0 {
			c.start(ctx, found[0], nil)
			continue
		}
		c.release()
		if cursor == start {
			wait(ctx, nil, c.bus.cfg.Park/2)
		}
	}
}
