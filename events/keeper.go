package events

import (
	"context"
	_ "embed"
	"time"
)

// Of the workers on one host one is the keeper: it tends the pools there.

//go:embed keep.lua
var keepLua string

//go:embed unkeep.lua
var unkeepLua string

type keepArgs struct {
	Slug   string `json:"slug"` // empty: no agent has a part in it
	Worker string `json:"worker"`
	Life   int64  `json:"life,omitempty"` // ms
}

// keeperKeys are the KEYS of keep.lua and unkeep.lua.
func (b *Bus) keeperKeys(host string) []string {
	return append(b.keys("", "", ""), b.key("keeper:"+host), b.key("keepers:"+host))
}

// Keep says that this worker is alive on the host for another ttl (whole milliseconds, at least one), and tells whether it
// is the one that tends the pools there until then: the first that asked, for as long as it asks again in time. Two workers
// must not have the same name.
func (b *Bus) Keep(ctx context.Context, host, worker string, ttl time.Duration) (bool, error) {
	n, err := b.number(ctx, "ask who tends the pools of "+host, b.scripts.keep, b.keeperKeys(host),
		keepArgs{Worker: worker, Life: max(ttl.Milliseconds(), 1)})
	return n == 1, err
}

// Unkeep says that this worker leaves the host; whoever asks next tends the pools. Last: no other worker is alive there.
func (b *Bus) Unkeep(ctx context.Context, host, worker string) (bool, error) {
	n, err := b.number(ctx, "leave the pools of "+host, b.scripts.unkeep, b.keeperKeys(host), keepArgs{Worker: worker})
	return n == 1, err
}
