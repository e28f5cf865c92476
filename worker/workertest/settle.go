package workertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/roboco/sandboxd/events"
)

// group is the consumer group of the work stream.
const group = "workers"

// EventsKey is the work stream of a cell.
func EventsKey(cellName string) string { return "{" + cellName + "}:events" }

// DeadKey is the stream of dead letters.
func DeadKey(cellName string) string { return "{" + cellName + "}:dead" }

// AuditKey is the stream in which the scripts keep what they do.
func AuditKey(cellName string) string { return "{" + cellName + "}:audit" }

// Sight is where the checks at rest look.
type Sight struct {
	Bus    *events.Bus
	Redis  *redis.Client
	Cell   string
	Agents []string
	// OwnerOf is the owner of an agent that lives, or "": the truth.
	OwnerOf func(slug string) string
	// Store is the durable store, as far as it knows of claims.
	Store Claims
}

// Records reads every record by slug, credentials and all.
func Records(ctx context.Context, bus *events.Bus) (map[string]events.Record, error) {
	all, err := bus.Sandboxes(ctx)
	if err != nil {
		return nil, fmt.Errorf("read records: %w", err)
	}
	records := map[string]events.Record{}
	for _, brief := range all {
		whole, err := bus.Sandbox(ctx, brief.Slug, false)
		if errors.Is(err, events.ErrExpired) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the record of %s: %w", brief.Slug, err)
		}
		records[brief.Slug] = whole
	}
	return records, nil
}

// Rest gathers how everything in Redis stands, and who owns what; the rest of it is the caller's to fill in.
func (s Sight) Rest(ctx context.Context) (Rest, error) {
	r := Rest{Agents: map[string]events.AgentState{}, Owners: map[string]string{}}
	var err error
	if r.Records, err = Records(ctx, s.Bus); err != nil {
		return r, err
	}
	for _, slug := range s.Agents {
		a, err := s.Bus.Agent(ctx, slug)
		if err != nil {
			return r, fmt.Errorf("read agent %s: %w", slug, err)
		}
		r.Agents[slug] = a
		if r.Owners[slug] = s.OwnerOf(slug); r.Owners[slug] == "" && !a.Owned {
			r.Owners[slug] = events.OwnerLease
		}
	}
	if err := s.replies(ctx, &r); err != nil {
		return r, err
	}
	return r, s.stream(ctx, &r)
}

func (s Sight) replies(ctx context.Context, r *Rest) error {
	r.Replies, r.ReplyOf = map[string][]events.Reply{}, map[string]string{}
	prefix := strings.TrimSuffix(s.Bus.ReplyStream("", ""), ":")
	scan := s.Redis.Scan(ctx, 0, prefix+"*", 1000).Iterator()
	for scan.Next(ctx) {
		stream := scan.Val()
		slug, rid, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(stream, prefix), ":"), ":")
		replies, err := s.Bus.Replies(ctx, slug, rid, "")
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

func (s Sight) stream(ctx context.Context, r *Rest) error {
	var length, dead *redis.IntCmd
	var pending *redis.XPendingCmd
	var consumers *redis.XInfoConsumersCmd
	_, err := s.Redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		length, dead = p.XLen(ctx, EventsKey(s.Cell)), p.XLen(ctx, DeadKey(s.Cell))
		pending, consumers = p.XPending(ctx, EventsKey(s.Cell), group), p.XInfoConsumers(ctx, EventsKey(s.Cell), group)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the work stream: %w", err)
	}
	r.Queued, r.DeadLetters, r.Pending, r.Consumers = length.Val(), dead.Val(), pending.Val().Count, len(consumers.Val())
	return nil
}

// AwaitRest looks every so often until nothing was wrong three times in a row, for a thing may still be about to happen, or
// ctx ends. It gives what was wrong last.
func AwaitRest(ctx context.Context, every time.Duration, look func(context.Context) (Rest, error)) (found []Violation) {
	for quiet := 0; quiet < 3; {
		if !wait(ctx, every) {
			break
		}
		rest, err := look(ctx)
		if err != nil {
			if ctx.Err() == nil || found == nil {
				found = []Violation{{Check: "harness", Detail: err.Error()}}
			}
			quiet = 0
			continue
		}
		if found = rest.Judge(); len(found) == 0 {
			quiet++
		} else {
			quiet = 0
		}
	}
	return found
}

// settle waits until nothing is under way and nothing is wrong at rest. What is still wrong at the end of the time is a violation.
func (c *chaos) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 40*time.Second)
	defer cancel()
	for _, v := range AwaitRest(ctx, grace/3, c.rest) {
		c.facts.bad(v.Check, "%s", v.Detail)
	}
}

// rest gathers how everything stands.
func (c *chaos) rest(ctx context.Context) (Rest, error) {
	agents := make([]string, 0, c.o.Agents)
	for i := range c.o.Agents {
		agents = append(agents, slugOf(i))
	}
	sight := Sight{Bus: c.bus, Redis: c.adm, Cell: cell, Agents: agents, OwnerOf: c.sim.AgentOwner, Store: c.store}
	r, err := sight.Rest(ctx)
	if err != nil {
		return r, err
	}
	c.facts.mu.Lock()
	r.Garbage = int64(c.facts.garbage)
	c.facts.mu.Unlock()
	c.mu.Lock()
	r.Workers = len(c.live)
	c.mu.Unlock()
	r.Names, r.Stranger, r.LettersMayDiffer = c.nameOf, c.stranger, c.o.Mode == Flush
	r.Containers, r.Truth, r.Ceilings = c.sim.Containers(), c.sim.Truth(), c.o.ceilings()
	return r, sight.Pools(ctx, &r)
}
