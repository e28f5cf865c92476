package events

import (
	"context"
	"crypto/rand"
	_ "embed"
	"fmt"
	"sort"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// A claim is what a container from a pool was taken for. Its labels cannot tell: they are older.

//go:embed claim.lua
var claimLua string

//go:embed forget.lua
var forgetLua string

// Claim is what a container was claimed for. It is written once.
type Claim struct {
	Slug, Engine string
	Epoch        string // of the run that took it
	Born         string // stream ID of the request it was taken for
	Tenancy      Tenancy
	// Retired: nobody has claimed it, and nobody ever may; the other fields are empty.
	Retired bool
}

// Claimed is a container that was just taken from a pool. Without an ID there was none.
type Claimed struct {
	ID   string
	Pool Pool
	Claim
}

type claimArgs struct {
	handle
	Epoch  string `json:"epoch"`
	Engine string `json:"engine"`
	Nonce  string `json:"nonce"`
}

// Claim takes, under the lease, the oldest container of the first of these pools that has one: the agent's from then on, and
// nobody else's ever. Held, without an ID when all the pools are empty, or Fenced. Redis does not know whether the
// container still lives.
func (b *Bus) Claim(ctx context.Context, d Delivery, epoch, engine string, pools []Pool) (Claimed, Fencing, error) {
	if len(pools) == 0 {
		return Claimed{}, Held, nil
	}
	slug := d.Event.Subject
	keys := b.keys(slug, d.rid, d.Event.ID)
	for _, p := range pools {
		keys = append(keys, b.poolKey(p))
	}
	doing := "claim a " + engine + " for " + slug
	v, err := b.list(ctx, doing, 7, b.scripts.claim, keys, claimArgs{handle: d.handle(), Epoch: epoch, Engine: engine, Nonce: rand.Text()})
	if err != nil {
		return Claimed{}, "", err
	}
	switch v[0] {
	case "FENCED":
		return Claimed{}, Fenced, nil
	case "EMPTY":
		return Claimed{}, Held, nil
	}
	which, err := strconv.Atoi(v[2])
	if err != nil || which < 1 || which > len(pools) {
		return Claimed{}, "", fmt.Errorf("%s: there is no pool %q", doing, v[2])
	}
	return Claimed{ID: v[1], Pool: pools[which-1], Claim: Claim{
		Slug: slug, Engine: engine, Epoch: epoch, Born: v[3],
		Tenancy: Tenancy{Task: v[4], Project: v[5], Owner: v[6]},
	}}, Held, nil
}

// Claims tells what these containers were claimed for, by ID, in one round trip. One that is not in it was claimed by nobody,
// as far as Redis knows.
func (b *Bus) Claims(ctx context.Context, ids []string) (map[string]Claim, error) {
	out := map[string]Claim{}
	if len(ids) == 0 {
		return out, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	read := make([]*redis.MapStringStringCmd, len(ids))
	_, err := b.calls.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range ids {
			read[i] = p.HGetAll(ctx, b.claimKey(id))
		}
		return nil
	})
	if err != nil {
		return nil, failed("read what containers were claimed for", err)
	}
	for i, id := range ids {
		h := read[i].Val()
		if len(h) == 0 {
			continue
		}
		out[id] = Claim{
			Slug: h["slug"], Engine: h["engine"], Epoch: h["epoch"], Born: h["born"], Retired: h["retired"] != "",
			Tenancy: Tenancy{Task: h["task"], Project: h["project"], Owner: h["owner"]},
		}
	}
	return out, nil
}

// ClaimedBy lists the containers that were claimed for an agent and not forgotten since, sorted. It is how an end finds one
// that does not bear the agent's name yet.
func (b *Bus) ClaimedBy(ctx context.Context, slug string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	ids, err := b.calls.SMembers(ctx, b.claimsKey(slug)).Result()
	sort.Strings(ids)
	return ids, failed("list what was claimed for "+slug, err)
}

// Forget takes the claim of a container away that was removed; another agent's claim stays. With no slug it takes away that
// the container was retired: for when Redis had lost its claim, which the durable store has.
func (b *Bus) Forget(ctx context.Context, slug, id string) error {
	_, err := b.number(ctx, "forget the claim of container "+id, b.scripts.forget, b.keys(slug, "", ""), pooled{Slug: slug, ID: id})
	return err
}
