package events

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Standing is what the guards of a request begin with.
type Standing struct {
	Switch Switch
	Agent  AgentState
	Record map[string]Entry // by engine; nil when there is none, or one that cannot be read here
	At     time.Time        // by when it was read, on Redis's clock
}

// Standing reads the standing of a request's agent, after the request was delivered. The first time it may be read together
// with that of others which came along with it.
func (b *Bus) Standing(ctx context.Context, d Delivery) (Standing, error) {
	if d.along != nil {
		if s, err, first := d.along.take(ctx, b, d); first {
			return s, err
		}
	}
	all, err := b.standings(ctx, []string{d.Event.Subject})
	return all[d.Event.Subject], err
}

// along are the requests that one read of the work stream has brought.
type along struct {
	mu     sync.Mutex
	agents map[string]string // entry -> agent, until its standing was taken
	read   bool
	stood  map[string]Standing // by agent
	err    error
}

// together makes one reading of what was delivered at once.
func together(messages []redis.XMessage) *along {
	a := &along{agents: map[string]string{}}
	for _, m := range messages {
		if Type(text(m, "type")) == SandboxRequested {
			a.agents[m.ID] = text(m, "subject")
		}
	}
	if len(a.agents) < 2 {
		return nil
	}
	return a
}

// take gives an entry's standing, once: whoever asks again wants to know what has changed. The first to ask reads for all.
func (a *along) take(ctx context.Context, b *Bus, d Delivery) (s Standing, err error, first bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if agent, ok := a.agents[d.Entry]; !ok || agent != d.Event.Subject {
		return Standing{}, nil, false
	}
	if !a.read {
		agents := make([]string, 0, len(a.agents))
		for _, agent := range a.agents {
			agents = append(agents, agent)
		}
		a.stood, a.err = b.standings(context.WithoutCancel(ctx), agents)
		a.read = true
	}
	delete(a.agents, d.Entry)
	return a.stood[d.Event.Subject], a.err, true
}

// standings reads those of these agents, in one call.
func (b *Bus) standings(ctx context.Context, agents []string) (map[string]Standing, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	const doing = "read the standing of agents"
	pipe := b.calls.Pipeline()
	on := pipe.Get(ctx, b.switchKey())
	hashes, records := make([]*redis.MapStringStringCmd, len(agents)), make([]*redis.MapStringStringCmd, len(agents))
	for i, slug := range agents {
		hashes[i], records[i] = pipe.HGetAll(ctx, b.agentKey(slug)), pipe.HGetAll(ctx, b.recordKey(slug))
	}
	clock := pipe.Time(ctx)
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) { // the switch alone may be missing
		return nil, failed(doing, err)
	}
	all := make(map[string]Standing, len(agents))
	for i, slug := range agents {
		for _, c := range []redis.Cmder{hashes[i], records[i], clock} {
			if c.Err() != nil {
				return nil, failed(doing, c.Err())
			}
		}
		all[slug] = Standing{
			Switch: Switch(on.Val()), Agent: agentState(hashes[i].Val(), clock.Val()),
			Record: b.readable(slug, records[i].Val()), At: clock.Val(),
		}
	}
	return all, nil
}

// readable reads a record's hash: all of it, or nothing.
func (b *Bus) readable(slug string, hash map[string]string) map[string]Entry {
	record := make(map[string]Entry, len(hash))
	for engine, raw := range hash {
		var e Entry
		if json.Unmarshal([]byte(raw), &e) != nil {
			return nil
		}
		record[engine] = e
	}
	if len(record) == 0 || b.openAll(slug, record) != nil {
		return nil
	}
	return record
}
