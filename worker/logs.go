package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
)

// handleLogs answers with the last lines of an agent's engines, passwords blanked.
func (w *Worker) handleLogs(ctx context.Context, d events.Delivery) {
	var q events.LogsWanted
	if err := json.Unmarshal(d.Event.Data, &q); err != nil {
		_ = w.settled(d, "dead-letter", func(ctx context.Context) error {
			_, err := w.cfg.Bus.DeadLetter(ctx, d, "the data of logs.requested cannot be read")
			return err
		})
		return
	}
	logs, err := w.readLogs(ctx, d.Event.Subject, q)
	if errors.Is(err, events.ErrUnavailable) {
		return
	}
	_ = w.settled(d, "answer", func(ctx context.Context) error {
		if err != nil {
			_, err := w.cfg.Bus.Refuse(ctx, d, events.StateFailed, *w.unmet(err), "")
			return err
		}
		body, err := json.Marshal(map[string]any{"logs": logs})
		if err != nil {
			return fmt.Errorf("encode logs: %w", err)
		}
		_, err = w.cfg.Bus.AnswerBody(ctx, d, body)
		return err
	})
}

// readLogs gives the text by engine; engines without a container are absent.
func (w *Worker) readLogs(ctx context.Context, slug string, q events.LogsWanted) (map[string]string, error) {
	cs, err := w.containersOf(ctx, slug)
	if err != nil {
		return nil, err
	}
	logs := map[string]string{}
	for _, c := range cs {
		engine := c.Labels[labelEngine]
		e, ok := w.cfg.Engines.Lookup(engine)
		if !ok || c.Name != containerName(e, slug) || q.Engine != "" && q.Engine != engine {
			continue
		}
		c, err := w.cfg.Runtime.Inspect(ctx, c.ID)
		if errors.Is(err, engines.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("inspect the %s of %s: %w", engine, slug, err)
		}
		text, err := w.cfg.Runtime.Logs(ctx, c.ID, q.Lines)
		if err != nil {
			return nil, fmt.Errorf("read the log of %s: %w", c.Name, err)
		}
		logs[engine] = blank(text, c.Env[engines.EnvPassword], c.Env[engines.EnvAdminPassword])
	}
	return logs, nil
}
