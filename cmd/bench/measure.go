package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/engines"
)

// bench is one run: what was measured so far, by name.
type bench struct {
	*rig
	rounds  int
	samples map[string]samples
}

func (b *bench) add(name string, since time.Time) {
	b.samples[name] = append(b.samples[name], time.Since(since))
}

// Names of what is measured.
const (
	floorStart   = "create and start a trivial container"
	floorRemoval = "remove a trivial container by force"
	coldFull     = "full set, cold: call to answer"
	releaseFull  = "release of the full set: call to nothing left"
	hitPlain     = "hit: HTTP call to answer"
)

func coldAlone(engine string) string { return engine + " alone, cold: call to answer" }

// floor is what the container engine takes for a container of the same limits that does nothing.
func (b *bench) floor(ctx context.Context) error {
	for i := range b.rounds {
		t := time.Now()
		id, err := b.runtime.Create(ctx, engines.Launch{
			Spec: engines.Spec{Image: trivial, Entrypoint: []string{"sleep"}, Cmd: []string{"600"}},
			Name: fmt.Sprintf("sandboxd-bench-%s-%d", b.id, i), Network: b.network,
			Memory: 512 << 20, NanoCPUs: 1e9, Pids: 256,
			Labels: map[string]string{"roboco.sandbox": "1", "roboco.sandbox.cell": "bench-floor-" + b.id},
		})
		if err != nil {
			return fmt.Errorf("create: %w", err)
		}
		if err := b.runtime.Start(ctx, id); err != nil {
			return fmt.Errorf("start: %w", err)
		}
		b.add(floorStart, t)
		t = time.Now()
		if err := b.runtime.Remove(ctx, id, 0); err != nil {
			return fmt.Errorf("remove: %w", err)
		}
		b.add(floorRemoval, t)
	}
	return nil
}

// alone provisions each engine in a project of its own.
func (b *bench) alone(ctx context.Context) error {
	for _, e := range b.engines {
		for range b.rounds {
			if err := b.begin(ctx, []string{e.Name}); err != nil {
				return err
			}
			if err := b.request(ctx, coldAlone(e.Name)); err != nil {
				return err
			}
			if err := b.end(ctx, ""); err != nil {
				return err
			}
		}
	}
	return nil
}

// full provisions and releases the whole set.
func (b *bench) full(ctx context.Context) error {
	for range b.rounds {
		if err := b.begin(ctx, b.engines.Names()); err != nil {
			return err
		}
		if err := b.request(ctx, coldFull); err != nil {
			return err
		}
		if err := b.end(ctx, releaseFull); err != nil {
			return err
		}
	}
	return nil
}

// hits asks for a sandbox that is there.
func (b *bench) hits(ctx context.Context, n int) error {
	if err := b.begin(ctx, b.engines.Names()); err != nil {
		return err
	}
	if err := b.request(ctx, ""); err != nil {
		return err
	}
	for range n {
		if err := b.request(ctx, hitPlain); err != nil {
			return err
		}
	}
	return b.end(ctx, "")
}

// begin opts a project of its own into these services, and begins work on it.
func (b *bench) begin(ctx context.Context, services []string) error {
	project := "p-" + uuid.NewString()[:8]
	if err := b.call(ctx, b.whole.Operator, http.MethodPut, "/api/v1/projects/"+project, map[string]any{"name": project, "sandbox_services": services}); err != nil {
		return fmt.Errorf("make a project: %w", err)
	}
	data, err := json.Marshal(map[string]string{"task_id": "T-" + project, "project": project})
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	event := map[string]any{"id": uuid.NewString(), "source": "bench", "type": "work.started", "subject": agent, "data": json.RawMessage(data)}
	if err := b.call(ctx, b.choreographer, http.MethodPost, "/api/v1/events", event); err != nil {
		return fmt.Errorf("begin work: %w", err)
	}
	return nil
}

// request makes one plain call, and demands a sandbox.
func (b *bench) request(ctx context.Context, name string) error {
	t := time.Now()
	if err := b.call(ctx, b.token, http.MethodPost, "/api/v1/do/request_sandbox", nil); err != nil {
		return fmt.Errorf("request: %w", err)
	}
	if name != "" {
		b.add(name, t)
	}
	return nil
}

// end ends the work and waits until no container of the agent is left.
func (b *bench) end(ctx context.Context, name string) error {
	t := time.Now()
	if err := b.call(ctx, b.token, http.MethodPost, "/api/v1/do/i_am_done", nil); err != nil {
		return fmt.Errorf("end work: %w", err)
	}
	for {
		left, err := b.runtime.List(ctx, map[string]string{"roboco.sandbox": "1", "roboco.sandbox.cell": "bench-" + b.id})
		if err != nil {
			return fmt.Errorf("list: %w", err)
		}
		if len(left) == 0 {
			break
		}
		if time.Since(t) > time.Minute {
			return fmt.Errorf("%d containers are left a minute after the end", len(left))
		}
		time.Sleep(5 * time.Millisecond)
	}
	if name != "" {
		b.add(name, t)
	}
	return nil
}

// call is one HTTP call, as any client in any language makes it; an envelope with an error is an error.
func (b *bench) call(ctx context.Context, token, method, path string, in any) error {
	var body io.Reader = http.NoBody
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encode: %w", err)
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, b.whole.URL+path, body)
	if err != nil {
		return fmt.Errorf("make the call: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	var env client.Envelope
	if err := json.Unmarshal(raw, &env); err == nil && env.Failed() || resp.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s %s: HTTP %d: %s %s", method, path, resp.StatusCode, env.Message, env.Remediate)
	}
	return nil
}
