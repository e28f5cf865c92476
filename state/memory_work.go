package state

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// owedEvent is an event of the outbox; one that was published stays, so that its ID is known.
type owedEvent struct {
	Outgoing
	agent     string
	at        time.Time
	published time.Time // zero while it is owed
}

// StartWork implements Engagements.
func (m *memory) StartWork(ctx context.Context, e Engagement, out Outgoing) error {
	if err := checkWork(e); err != nil {
		return err
	}
	if err := checkOutgoing(out); err != nil {
		return err
	}
	if err := m.begin(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	if fresh, err := m.owe(e.Agent, out); err != nil || !fresh {
		return err
	}
	if last := m.last(e.Agent); last != nil && !last.Ended {
		if last.Task == e.Task && last.Project == e.Project {
			last.Status = e.Status
			last.Owned = last.Owned || e.Owned
			return nil
		}
		last.Ended, last.EndedAt = true, m.now()
	}
	e.Ended, e.EndedAt = false, time.Time{}
	if e.StartedAt.IsZero() {
		e.StartedAt = m.now()
	}
	e.StartedAt = instant(e.StartedAt)
	m.engagements[e.Agent] = append(m.engagements[e.Agent], e)
	return nil
}

// EndWork implements Engagements.
func (m *memory) EndWork(ctx context.Context, agent, task string, out Outgoing) (Engagement, error) {
	if err := checkEnd(agent, task, out); err != nil {
		return Engagement{}, err
	}
	if err := m.begin(ctx); err != nil {
		return Engagement{}, err
	}
	defer m.mu.Unlock()
	fresh, err := m.owe(agent, out)
	if err != nil {
		return Engagement{}, err
	}
	last := m.last(agent)
	if last == nil {
		return Engagement{}, nil
	}
	if fresh && !last.Ended && (task == "" || task == last.Task) {
		last.Ended, last.EndedAt = true, m.now()
	}
	return *last, nil
}

// Engagement implements Engagements.
func (m *memory) Engagement(ctx context.Context, agent string) (Engagement, error) {
	if err := m.begin(ctx); err != nil {
		return Engagement{}, err
	}
	defer m.mu.Unlock()
	last := m.last(agent)
	if last == nil {
		return Engagement{}, noEngagement(agent)
	}
	return *last, nil
}

// SetOwned implements Engagements.
func (m *memory) SetOwned(ctx context.Context, agent, task, project string) error {
	if err := m.begin(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	if last := m.last(agent); last != nil && !last.Ended && last.Task == task && last.Project == project {
		last.Owned = true
	}
	return nil
}

// Published implements Engagements.
func (m *memory) Published(ctx context.Context, eventID string) error {
	if err := m.begin(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	if this, ok := m.events[eventID]; ok {
		for i := range m.owed[:this+1] {
			if o := &m.owed[i]; o.agent == m.owed[this].agent && o.published.IsZero() {
				o.published = m.now()
			}
		}
	}
	return nil
}

// OwedBefore implements Engagements.
func (m *memory) OwedBefore(ctx context.Context, eventID string) (out []Outgoing, err error) {
	if err := m.begin(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	this, ok := m.events[eventID]
	if !ok {
		return nil, nil
	}
	for _, o := range m.owed[:this] {
		if o.agent == m.owed[this].agent && o.published.IsZero() {
			out = append(out, Outgoing{EventID: o.EventID, Event: slices.Clone(o.Event)})
		}
	}
	return out, nil
}

// Unpublished implements Engagements.
func (m *memory) Unpublished(ctx context.Context, age time.Duration, limit int) ([]Outgoing, error) {
	if err := m.begin(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	before := m.now().Add(-age)
	out := []Outgoing{}
	for _, o := range m.owed {
		if len(out) == owedLimit(limit) {
			break
		}
		if o.published.IsZero() && !o.at.After(before) {
			out = append(out, Outgoing{EventID: o.EventID, Event: slices.Clone(o.Event)})
		}
	}
	return out, nil
}

// last points at the agent's latest engagement, or nil.
func (m *memory) last(agent string) *Engagement {
	all := m.engagements[agent]
	if len(all) == 0 {
		return nil
	}
	return &all[len(all)-1]
}

// owe adds the event to the outbox; false when its ID is known, and ErrPublished when it has been published, too.
func (m *memory) owe(agent string, out Outgoing) (fresh bool, err error) {
	if i, known := m.events[out.EventID]; known {
		if !m.owed[i].published.IsZero() {
			err = fmt.Errorf("event %s: %w", out.EventID, ErrPublished)
		}
		return false, err
	}
	m.events[out.EventID] = len(m.owed)
	out.Event = slices.Clone(out.Event)
	m.owed = append(m.owed, owedEvent{Outgoing: out, agent: agent, at: m.now()})
	return true, nil
}

// forget drops events that were published before this time.
func (m *memory) forget(before time.Time) {
	m.owed = slices.DeleteFunc(m.owed, func(o owedEvent) bool {
		return !o.published.IsZero() && o.published.Before(before)
	})
	clear(m.events)
	for i, o := range m.owed {
		m.events[o.EventID] = i
	}
}

func checkEnd(agent, task string, out Outgoing) error {
	if err := checkSlug("agent", agent); err != nil {
		return err
	}
	if err := checkText("task", task); err != nil {
		return err
	}
	return checkOutgoing(out)
}

func noEngagement(agent string) error {
	return fmt.Errorf("engagement of agent %s: %w", quote(agent), ErrNotFound)
}
