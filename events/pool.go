package events

import (
	"context"
	_ "embed"
)

// A pool is a list of ready containers that nobody has claimed, on the host where they run.

//go:embed stock.lua
var stockLua string

//go:embed retire.lua
var retireLua string

// Pool names the ready containers of one kind on one host.
type Pool struct {
	Host, Engine string
	// Make is a fingerprint of the image and the configuration that they were made with.
	Make string
	// Features active in them, sorted.
	Features []string
}

// pooled are the arguments of what happens to a container in a pool. No agent has a part in it: Slug is empty.
type pooled struct {
	Slug   string `json:"slug"`
	ID     string `json:"id"`
	Engine string `json:"engine"`
}

// Stock puts a ready container into its pool, behind those that are there. It is false when the container was claimed or
// retired, as far as Redis knows, or is in the pool already. After a loss of Redis only the durable store knows what was
// claimed: ask it first.
func (b *Bus) Stock(ctx context.Context, p Pool, id string) (bool, error) {
	n, err := b.number(ctx, "put container "+id+" into its pool", b.scripts.stock, append(b.keys("", "", ""), b.poolKey(p)),
		pooled{ID: id, Engine: p.Engine})
	return n == 1, err
}

// Stocked lists the container IDs in a pool, the oldest first: the one that is claimed next.
func (b *Bus) Stocked(ctx context.Context, p Pool) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	ids, err := b.calls.LRange(ctx, b.poolKey(p), 0, -1).Result()
	return ids, failed("list the pool of "+p.Engine, err)
}

// Retire decides the removal of a container that came from a pool and has no claim. FateDead: it is out of the pool and
// nobody can claim it any more, remove it by ID; so it is when it is asked again. FateClaimed: hands off. After a loss of
// Redis only the durable store knows what was claimed: ask it first.
func (b *Bus) Retire(ctx context.Context, p Pool, id string) (Fate, error) {
	v, err := b.word(ctx, "retire container "+id, b.scripts.retire, append(b.keys("", "", ""), b.poolKey(p)),
		pooled{ID: id, Engine: p.Engine})
	return Fate(v), err
}
