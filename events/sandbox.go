package events

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed sandbox.lua
var sandboxLua string

//go:embed own.lua
var ownLua string

// Sandbox reads an agent's record, and with slide gives it its whole TTL again. ErrExpired when there is none,
// *SealedError when it cannot be opened here.
func (b *Bus) Sandbox(ctx context.Context, slug string, slide bool) (Record, error) {
	r, err := b.sandbox(ctx, slug, slide)
	if err != nil {
		return Record{}, err
	}
	if err := b.openAll(slug, r.Engines); err != nil {
		return Record{}, err
	}
	return r, nil
}

// sandbox reads a record as it stands in Redis.
func (b *Bus) sandbox(ctx context.Context, slug string, slide bool) (Record, error) {
	args := struct {
		Slug  string `json:"slug"`
		Slide int    `json:"slide"`
	}{Slug: slug}
	if slide {
		args.Slide = 1
	}
	doing := "read the sandbox of " + slug
	v, err := b.list(ctx, doing, 5, b.scripts.sandbox, b.keys(slug, "", ""), args)
	if err != nil {
		return Record{}, err
	}
	if v == nil {
		return Record{}, fmt.Errorf("%s: %w", doing, ErrExpired)
	}
	r := Record{Slug: slug, Tenancy: Tenancy{Task: v[1], Project: v[2], Owner: v[3]}}
	if err := json.Unmarshal([]byte(v[0]), &r.Engines); err != nil {
		return Record{}, fmt.Errorf("%s: %w", doing, err)
	}
	left, err := strconv.ParseInt(v[4], 10, 64)
	if err != nil {
		return Record{}, fmt.Errorf("%s: %w", doing, err)
	}
	r.Expires = time.Now().Add(time.Duration(left) * time.Millisecond)
	return r, nil
}

// Sandboxes reads every record, by slug, without the payloads.
func (b *Bus) Sandboxes(ctx context.Context) ([]Record, error) {
	slugs, err := b.slugs(ctx)
	if err != nil {
		return nil, err
	}
	there, err := b.recorded(ctx, slugs)
	if err != nil {
		return nil, err
	}
	var out []Record
	for _, slug := range there {
		r, err := b.sandbox(ctx, slug, false)
		if errors.Is(err, ErrExpired) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for engine, e := range r.Engines {
			e.Payload = nil
			r.Engines[engine] = e
		}
		out = append(out, r)
	}
	return out, nil
}

// recorded picks the slugs that have a record.
func (b *Bus) recorded(ctx context.Context, slugs []string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	found := make([]*redis.IntCmd, len(slugs))
	_, err := b.calls.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, slug := range slugs {
			found[i] = p.Exists(ctx, b.recordKey(slug))
		}
		return nil
	})
	if err != nil {
		return nil, failed("look for records", err)
	}
	var out []string
	for i, slug := range slugs {
		if found[i].Val() == 1 {
			out = append(out, slug)
		}
	}
	return out, nil
}

// Owners lists the slugs of every agent that Redis knows a sandbox owner for, with that owner (for the janitor).
func (b *Bus) Owners(ctx context.Context) (map[string]string, error) {
	slugs, err := b.slugs(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	read := make([]*redis.StringCmd, len(slugs))
	_, err = b.calls.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, slug := range slugs {
			read[i] = p.HGet(ctx, b.agentKey(slug), "owner")
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, failed("list the owners", err)
	}
	out := map[string]string{}
	for i, slug := range slugs {
		switch owner, err := read[i].Result(); {
		case errors.Is(err, redis.Nil):
		case err != nil:
			return nil, failed("read the owner of "+slug, err)
		default:
			out[slug] = owner
		}
	}
	return out, nil
}

// slugs lists every agent that Redis has a hash of, sorted.
func (b *Bus) slugs(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	slugs, err := b.calls.SMembers(ctx, b.key("agents")).Result()
	sort.Strings(slugs)
	return slugs, failed("list the agents", err)
}

// Workers counts the consumers of the work stream that have shown themselves within Config.ClaimIdle. One whose idle time
// is not known (the embedded server tells none) counts.
func (b *Bus) Workers(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	all, err := b.calls.XInfoConsumers(ctx, b.stream(), group).Result()
	if noGroup(err) || err != nil && strings.Contains(err.Error(), "no such key") {
		return 0, nil
	}
	if err != nil {
		return 0, failed("look for workers", err)
	}
	n := 0
	for _, c := range all {
		if c.Name != parked && c.Name != lined && c.Idle < b.cfg.ClaimIdle {
			n++
		}
	}
	return n, nil
}

// Gauges are the bus's own figures.
type Gauges struct {
	StreamLength, Pending, DeadLetters, Sandboxes int64
	OldestPending                                 time.Duration
	// Letters counts the dead letters that there ever were, by cause.
	Letters map[Cause]int64
}

// Gauges reads them.
func (b *Bus) Gauges(ctx context.Context) (Gauges, error) {
	slugs, err := b.slugs(ctx)
	if err != nil {
		return Gauges{}, err
	}
	there, err := b.recorded(ctx, slugs)
	if err != nil {
		return Gauges{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	pipe := b.calls.Pipeline()
	length, dead, clock := pipe.XLen(ctx, b.stream()), pipe.XLen(ctx, b.key("dead")), pipe.Time(ctx)
	letters := pipe.HGetAll(ctx, b.key("letters"))
	if _, err := pipe.Exec(ctx); err != nil {
		return Gauges{}, failed("read the gauges", err)
	}
	g := Gauges{StreamLength: length.Val(), DeadLetters: dead.Val(), Sandboxes: int64(len(there)), Letters: counts(letters.Val())}
	pending, err := b.calls.XPending(ctx, b.stream(), group).Result()
	if noGroup(err) {
		return g, nil
	}
	if err != nil && !errors.Is(err, redis.Nil) {
		return g, failed("read what is pending", err)
	}
	if pending != nil && pending.Count > 0 {
		g.Pending = pending.Count
		g.OldestPending = max(clock.Val().Sub(timeOf(pending.Lower)), 0)
	}
	return g, nil
}

// counts are the dead letters by cause; a cause without any is there too, so that its first one is seen as a rise.
func counts(kept map[string]string) map[Cause]int64 {
	out := map[Cause]int64{CauseUndecodable: 0, CauseRefused: 0, CauseExhausted: 0, CausePanicked: 0}
	for cause, n := range kept {
		out[Cause(cause)], _ = strconv.ParseInt(n, 10, 64)
	}
	return out
}
