package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/events"
)

// caller is an agent that asks.
type caller struct {
	*place

	slug, token string
}

// caller makes an agent; its name is no other's on this machine.
func (p *place) caller(ctx context.Context, name string) (*caller, error) {
	c := &caller{place: p, slug: name + "-" + p.cell}
	var err error
	c.token, err = p.whole.Agent(ctx, c.slug, "developer")
	return c, err
}

// begin begins work on the set's project.
func (c *caller) begin(ctx context.Context, s set) error {
	data, err := json.Marshal(map[string]string{"task_id": "T-" + uuid.NewString(), "project": s.name, "owner": events.OwnerLease})
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	event := map[string]any{"id": uuid.NewString(), "source": "bench", "type": "work.started", "subject": c.slug, "data": json.RawMessage(data)}
	if err := c.call(ctx, c.chief, http.MethodPost, "/api/v1/events", event); err != nil {
		return fmt.Errorf("begin work: %w", err)
	}
	return nil
}

// request makes one plain call, and demands a sandbox whose engines all came about as named; any way will do for "".
func (c *caller) request(ctx context.Context, outcome string) (time.Duration, error) {
	env, took, err := c.sandbox(ctx)
	if err != nil {
		return 0, err
	}
	for engine, e := range env.Evidence {
		if outcome != "" && e.Outcome != outcome {
			return 0, fmt.Errorf("%s was %s, but what was to be measured is %s: %s", engine, e.Outcome, outcome, e.Reason)
		}
	}
	return took, nil
}

// sandbox makes one plain call.
func (c *caller) sandbox(ctx context.Context) (env client.Envelope, took time.Duration, err error) {
	t := time.Now()
	env, err = c.ask(ctx, c.token, http.MethodPost, "/api/v1/do/request_sandbox", nil)
	if took = time.Since(t); err != nil {
		return env, took, fmt.Errorf("request: %w", err)
	}
	return env, took, nil
}

// end ends the work.
func (c *caller) end(ctx context.Context) error {
	if err := c.call(ctx, c.token, http.MethodPost, "/api/v1/do/i_am_done", nil); err != nil {
		return fmt.Errorf("end work: %w", err)
	}
	return nil
}

// release ends the work, and waits until no container of the agent is left.
func (c *caller) release(ctx context.Context) (time.Duration, error) {
	t := time.Now()
	if err := c.end(ctx); err != nil {
		return 0, err
	}
	err := await(ctx, time.Minute, "the agent's containers to go", func() (bool, error) {
		named, err := c.runtime.ListNamed(ctx, "roboco-sandbox-")
		if err != nil {
			return false, fmt.Errorf("list: %w", err)
		}
		for _, n := range named {
			if strings.HasSuffix(n.Name, "-"+c.slug) {
				return false, nil
			}
		}
		return true, nil
	})
	return time.Since(t), err
}
