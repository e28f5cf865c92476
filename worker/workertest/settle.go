package workertest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/roboco/sandboxd/events"
)

// The keys of the bus that only the checks at rest look into.
const (
	eventsKey = "{" + cell + "}:events"
	deadKey   = "{" + cell + "}:dead"
	group     = "workers"
)

// settle waits until nothing is under way and nothing is wrong at rest. What is still wrong at the end of the time is a violation.
func (c *chaos) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 40*time.Second)
	defer cancel()
	var found []Violation
	for quiet := 0; quiet < 3; { // a thing may still be about to happen: it must stay right
		if !wait(ctx, grace/3) {
			break
		}
		rest, err := c.rest(ctx)
		if err != nil {
			found = []Violation{{Check: "harness", Detail: err.Error()}}
			continue
		}
		if found = rest.Judge(); len(found) == 0 {
			quiet++
		} else {
			quiet = 0
		}
	}
	for _, v := range found {
		c.facts.bad(v.Check, "%s", v.Detail)
	}
}

// rest gathers how everything stands.
func (c *chaos) rest(ctx context.Context) (Rest, error) {
	c.facts.mu.Lock()
	garbage := int64(c.facts.garbage)
	c.facts.mu.Unlock()
	c.mu.Lock()
	workers := len(c.live)
	c.mu.Unlock()
	r := Rest{
		Records: map[string]events.Record{}, Agents: map[string]events.AgentState{}, Owners: map[string]string{},
		Names: c.nameOf, Stranger: c.stranger, Garbage: garbage, LettersMayDiffer: c.o.Mode == Flush, Workers: workers,
	}
	records, err := c.bus.Sandboxes(ctx)
	if err != nil {
		return r, fmt.Errorf("read records: %w", err)
	}
	for _, rec := range records {
		r.Records[rec.Slug] = rec
	}
	for i := range c.o.Agents {
		if err := c.restOf(ctx, &r, slugOf(i)); err != nil {
			return r, err
		}
	}
	if err := c.restOfReplies(ctx, &r); err != nil {
		return r, err
	}
	r.Containers, r.Truth = c.sim.Containers(), c.sim.Truth()
	return r, c.restOfStream(ctx, &r)
}

func (c *chaos) restOf(ctx context.Context, r *Rest, slug string) error {
	a, err := c.bus.Agent(ctx, slug)
	if err != nil {
		return fmt.Errorf("read agent %s: %w", slug, err)
	}
	r.Agents[slug] = a
	if r.Owners[slug] = c.sim.AgentOwner(slug); r.Owners[slug] == "" && !a.Owned {
		r.Owners[slug] = events.OwnerLease
	}
	return nil
}

func (c *chaos) restOfReplies(ctx context.Context, r *Rest) error {
	r.Replies, r.ReplyOf = map[string][]events.Reply{}, map[string]string{}
	prefix := strings.TrimSuffix(c.bus.ReplyStream("", ""), ":")
	scan := c.adm.Scan(ctx, 0, prefix+"*", 1000).Iterator()
	for scan.Next(ctx) {
		stream := scan.Val()
		slug, rid, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(stream, prefix), ":"), ":")
		replies, err := c.bus.Replies(ctx, slug, rid, "")
		if err != nil {
			return fmt.Errorf("read %s: %w", stream, err)
		}
		r.ReplyOf[stream], r.Replies[stream] = slug, nil
		for _, reply := range replies {
			if reply.Terminal() {
				r.Replies[stream] = append(r.Replies[stream], reply)
			}
		}
	}
	if err := scan.Err(); err != nil {
		return fmt.Errorf("list reply streams: %w", err)
	}
	return nil
}

func (c *chaos) restOfStream(ctx context.Context, r *Rest) error {
	var length, dead *redis.IntCmd
	var pending *redis.XPendingCmd
	var consumers *redis.XInfoConsumersCmd
	_, err := c.adm.Pipelined(ctx, func(p redis.Pipeliner) error {
		length, dead = p.XLen(ctx, eventsKey), p.XLen(ctx, deadKey)
		pending, consumers = p.XPending(ctx, eventsKey, group), p.XInfoConsumers(ctx, eventsKey, group)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the work stream: %w", err)
	}
	r.Queued, r.DeadLetters, r.Pending, r.Consumers = length.Val(), dead.Val(), pending.Val().Count, len(consumers.Val())
	return nil
}
