package state

import "context"

// RecordClaim implements History.
func (m *memory) RecordClaim(ctx context.Context, c Claim) error {
	c, err := c.kept(m.now())
	if err != nil {
		return err
	}
	if err := m.begin(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	first, known := m.claims[c.ContainerID]
	if !known {
		m.claims[c.ContainerID] = c
		return nil
	}
	return c.follows(first)
}

// Claims implements History.
func (m *memory) Claims(ctx context.Context, containerIDs []string) (map[string]Claim, error) {
	if err := m.begin(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	out := map[string]Claim{}
	for _, id := range containerIDs {
		if c, ok := m.claims[id]; ok {
			out[id] = c
		}
	}
	return out, nil
}
