package state

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	defaultPage = 50
	maxPage     = 500
	maxOwed     = 1000 // most owed events in one listing
	// keepPublished is how long a published event's ID is known at least, so that a late repetition changes nothing.
	keepPublished = 24 * time.Hour
)

// instant is t as both stores keep it: UTC, whole microseconds, no monotonic clock; zero stays zero.
func instant(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Microsecond)
}

// requests are the rows as they are stored: the last of each ID, sorted by ID, so that two writers of the same rows
// never wait for each other in a ring.
func requests(rows []Request, now time.Time) ([]Request, error) {
	byID := make(map[string]Request, len(rows))
	for _, r := range rows {
		if r.ID == "" {
			return nil, &InvalidError{Field: "request_id", Problem: "is empty"}
		}
		r = r.kept(now)
		byID[r.ID] = r
	}
	out := make([]Request, 0, len(byID))
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		out = append(out, byID[id])
	}
	return out, nil
}

// kept is a copy that shares nothing with r and holds only what Postgres can keep. History takes what it is given: a
// log's tail with a NUL in it must not cost the row.
func (r Request) kept(now time.Time) Request {
	for _, s := range []*string{&r.ID, &r.Agent, &r.Role, &r.Task, &r.Project, &r.Host, &r.Worker, &r.Outcome, &r.Message} {
		*s = clean(*s)
	}
	r.Services = cleanList(r.Services)
	r.Extensions = cleanLists(r.Extensions)
	r.Containers = slices.Clone(r.Containers)
	for i := range r.Containers {
		c := &r.Containers[i]
		for _, s := range []*string{&c.ID, &c.Engine, &c.Outcome, &c.Task, &c.Project, &c.Owner, &c.Born, &c.Epoch} {
			*s = clean(*s)
		}
	}
	phases := r.Phases
	r.Phases = nil
	for name, ms := range phases {
		if r.Phases == nil {
			r.Phases = make(map[string]int64, len(phases))
		}
		r.Phases[clean(name)] = ms
	}
	if len(r.Containers) == 0 {
		r.Containers = nil
	}
	if r.AskedAt.IsZero() {
		r.AskedAt = now
	}
	r.AskedAt, r.DoneAt = instant(r.AskedAt), instant(r.DoneAt)
	return r
}

// kept is a copy that holds only what Postgres can keep.
func (c Claim) kept(now time.Time) (Claim, error) {
	if c.ContainerID == "" {
		return Claim{}, &InvalidError{Field: "container_id", Problem: "is empty"}
	}
	for _, s := range []*string{&c.ContainerID, &c.RequestID, &c.Agent, &c.Engine, &c.Host, &c.Task, &c.Project, &c.Owner, &c.Born, &c.Epoch} {
		*s = clean(*s)
	}
	if c.ClaimedAt.IsZero() {
		c.ClaimedAt = now
	}
	c.ClaimedAt = instant(c.ClaimedAt)
	return c, nil
}

// follows is what becomes of a claim where another one stands already.
func (c Claim) follows(first Claim) error {
	if c.Agent == first.Agent && c.Epoch == first.Epoch {
		return nil
	}
	return fmt.Errorf("claim container %q for %q: %w, for %q", c.ContainerID, c.Agent, ErrClaimed, first.Agent)
}

// copied shares nothing with r.
func (r Request) copied() Request {
	r.Services = slices.Clone(r.Services)
	r.Extensions = cloneLists(r.Extensions)
	r.Containers = slices.Clone(r.Containers)
	r.Phases = maps.Clone(r.Phases)
	return r
}

// settled is the time that pruning goes by: a row that was never done goes by when it was asked.
func (r Request) settled() time.Time {
	if r.DoneAt.IsZero() {
		return r.AskedAt
	}
	return r.DoneAt
}

// page is the limit that the filter means.
func (f HistoryFilter) page() (int, error) {
	if f.Limit == 0 {
		return defaultPage, nil
	}
	if f.Limit < 0 || f.Limit > maxPage {
		return 0, &InvalidError{Field: "limit", Problem: fmt.Sprintf("%d is outside 1 to %d", f.Limit, maxPage)}
	}
	return f.Limit, nil
}

// storable says whether a row could match at all.
func (f HistoryFilter) storable() bool {
	return storable(f.Agent) && storable(f.Project) && storable(f.Task) && storable(f.Outcome) && storable(f.Before)
}

// admits says whether the row is on the page or on one after it.
func (f HistoryFilter) admits(r Request) bool {
	return (f.Agent == "" || f.Agent == r.Agent) &&
		(f.Project == "" || f.Project == r.Project) &&
		(f.Task == "" || f.Task == r.Task) &&
		(f.Outcome == "" || f.Outcome == r.Outcome) &&
		(f.Before == "" || r.ID < f.Before)
}

// owedLimit is how many owed events a listing gives; a limit out of range means the most.
func owedLimit(limit int) int {
	if limit < 1 || limit > maxOwed {
		return maxOwed
	}
	return limit
}

// clean replaces what Postgres cannot keep by U+FFFD.
func clean(s string) string {
	if storable(s) {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

func cleanList(in []string) []string {
	out := slices.Clone(in)
	for i := range out {
		out[i] = clean(out[i])
	}
	return out
}

func cleanLists(in map[string][]string) map[string][]string {
	if len(in) == 0 {
		return nil
	}
	out := make(map[string][]string, len(in))
	for k, v := range in {
		out[clean(k)] = cleanList(v)
	}
	return out
}
