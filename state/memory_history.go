package state

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"
)

// Flag implements Flags.
func (m *memory) Flag(ctx context.Context, name string) (Flag, error) {
	if err := m.begin(ctx); err != nil {
		return Flag{}, err
	}
	defer m.mu.Unlock()
	return m.flags[name].copy(), nil
}

// SetFlag implements Flags.
func (m *memory) SetFlag(ctx context.Context, name string, value *bool) (Flag, error) {
	if err := checkFlag(name); err != nil {
		return Flag{}, err
	}
	if err := m.begin(ctx); err != nil {
		return Flag{}, err
	}
	defer m.mu.Unlock()
	f := Flag{Value: value, Revision: m.flags[name].Revision + 1}.copy()
	m.flags[name] = f
	return f.copy(), nil
}

// copy shares nothing with f.
func (f Flag) copy() Flag {
	if f.Value != nil {
		v := *f.Value
		f.Value = &v
	}
	return f
}

// RecordRequests implements History.
func (m *memory) RecordRequests(ctx context.Context, rows []Request) error {
	rows, err := requests(rows, m.now())
	if err != nil {
		return err
	}
	if err := m.begin(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	for _, r := range rows {
		i, known := m.find(r.ID)
		if known {
			m.history[i] = r
			continue
		}
		m.history = slices.Insert(m.history, i, r)
	}
	return nil
}

// Requests implements History.
func (m *memory) Requests(ctx context.Context, f HistoryFilter) ([]Request, error) {
	limit, err := f.page()
	if err != nil {
		return nil, err
	}
	if err := m.begin(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	out := []Request{}
	for _, r := range slices.Backward(m.history) {
		if len(out) == limit {
			break
		}
		if f.admits(r) {
			out = append(out, r.copied())
		}
	}
	return out, nil
}

// PruneRequests implements History.
func (m *memory) PruneRequests(ctx context.Context, before time.Time) (int64, error) {
	if err := m.begin(ctx); err != nil {
		return 0, err
	}
	defer m.mu.Unlock()
	had := len(m.history)
	m.history = slices.DeleteFunc(m.history, func(r Request) bool { return r.settled().Before(before) })
	maps.DeleteFunc(m.claims, func(_ string, c Claim) bool { return c.ClaimedAt.Before(before) })
	if young := m.now().Add(-keepPublished); young.Before(before) {
		before = young
	}
	m.forget(before)
	return int64(had - len(m.history)), nil
}

// find is the row's index, or where it belongs.
func (m *memory) find(id string) (int, bool) {
	return slices.BinarySearchFunc(m.history, id, func(r Request, id string) int { return cmp.Compare(r.ID, id) })
}
