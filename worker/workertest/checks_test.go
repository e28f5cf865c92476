package workertest

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/state"
)

// The made-up world of these histories: times are in seconds after zero, stream IDs have them as milliseconds.
const (
	sec = int64(1_000_000)
	ttl = 100 * sec
)

// world has one agent with two owners in turn, and containers made for it.
func world(change func(*Past)) *Past {
	p := &Past{
		TTL: ttl,
		Truth: Truth{
			Lives: map[string]Life{
				"c1":    {ID: "c1", Agent: "a", Engine: "pg", Task: "t1", Owner: "k1", Born: "1000-0", Created: sec, Ours: true},
				"c2":    {ID: "c2", Agent: "a", Engine: "pg", Task: "t1", Owner: "k1", Born: "2000-0", Created: 2 * sec, Ours: true},
				"c3":    {ID: "c3", Agent: "a", Engine: "pg", Task: "t1", Owner: "k2", Born: "2000-0", Created: 2 * sec, Ours: true},
				"p1":    {ID: "p1", Engine: "pg", Created: sec / 2, Ours: true, Pooled: true},
				"other": {ID: "other", Agent: "b", Engine: "pg", Task: "t1", Owner: "k9", Born: "1000-0", Created: sec, Ours: true},
			},
			Owners: map[string]OwnerLife{"k1": {Agent: "a", Seq: 1, Up: 1}, "k2": {Agent: "a", Seq: 2, Up: 10 * sec}},
		},
		Asked: map[string]Asked{"r1": {Task: "t1", Owner: "k1"}, "r2": {Task: "t1", Owner: "k2"}},
	}
	if change != nil {
		change(p)
	}
	return p
}

func (p *Past) set(id string, f func(*Life)) {
	l := p.Truth.Lives[id]
	f(&l)
	p.Truth.Lives[id] = l
}

func recorded(at int64, id, born string, features ...string) Mark {
	return Mark{Kind: MarkRecord, Agent: "a", Engine: "pg", At: at * sec, Container: id, Born: born, Owner: "k1", Epoch: "5", Lease: "5", Features: features}
}

func replied(at int64, rid, born string, ids ...string) Mark {
	m := Mark{Kind: MarkReply, Agent: "a", At: at * sec, Request: rid, State: "ok", Born: born, Owner: "k1", Checked: at*sec - 1000, Handed: map[string]string{}}
	for _, id := range ids {
		m.Handed["pg"] = id
	}
	return m
}

func requested(rid string) Mark {
	return Mark{Kind: MarkRequest, Agent: "a", At: sec / 2, Request: rid, Born: "500-0"}
}

// claimedAt takes the ready container p1 for an agent and its owner.
func claimedAt(at int64, agent, owner string) Mark {
	return Mark{
		Kind: MarkClaim, Agent: agent, Engine: "pg", At: at * sec, Container: "p1", Born: "1000-0", Owner: owner, Epoch: "5", Lease: "5", Task: "t1",
	}
}

func adopted(at int64, agent string) Mark {
	return Mark{Kind: MarkAdopt, Agent: agent, Engine: "pg", At: at * sec, Container: "p1", Born: "1000-0", Owner: "k1"}
}

// stored lets the durable store know that p1 was claimed.
func stored(agent, owner string) func(*Past) {
	return func(p *Past) {
		p.Stored = map[string]state.Claim{"p1": {ContainerID: "p1", Agent: agent, Engine: "pg", Owner: owner, Task: "t1", Born: "1000-0", Epoch: "5"}}
	}
}

func stockedAt(at int64) Mark {
	return Mark{Kind: MarkStock, Engine: "pg", At: at * sec, Container: "p1"}
}

func retiredAt(at int64) Mark {
	return Mark{Kind: MarkRetire, Engine: "pg", At: at * sec, Container: "p1"}
}

func endedAt(at int64, id string) Mark {
	return Mark{Kind: MarkEnd, Agent: "a", At: at * sec, ID: id, Type: string(events.WorkEnded)}
}

func TestChecks(t *testing.T) {
	t.Parallel()
	cases := []struct {
		check, name string
		change      func(*Past)
		marks       []Mark
		broken      bool
	}{
		{"I1", "the watermark grows", nil, []Mark{endedAt(1, "1000-0"), endedAt(2, "1000-1")}, false},
		{"I1", "the watermark falls", nil, []Mark{endedAt(1, "1000-1"), endedAt(2, "1000-0")}, true},
		{"I1", "a flush forgets the watermark", nil, []Mark{endedAt(1, "1000-1"), {Kind: MarkFlush, At: sec}, endedAt(2, "1000-0")}, false},

		{"I3", "a beat of the holder", nil, []Mark{{Kind: MarkBeat, Agent: "a", Epoch: "5", Lease: "5"}}, false},
		{"I3", "a beat of another", nil, []Mark{{Kind: MarkBeat, Agent: "a", Epoch: "5", Lease: "6"}}, true},
		{"I3", "a record under no lease", nil, []Mark{{Kind: MarkRecord, Agent: "a", Engine: "pg", Container: "c1", Born: "1000-0", Owner: "k1", Epoch: "5"}}, true},
		{"I3", "an epoch comes back", nil, []Mark{{Kind: MarkBeat, Agent: "a", Epoch: "6", Lease: "6"}, {Kind: MarkBeat, Agent: "a", Epoch: "5", Lease: "5"}}, true},

		{"I5", "recorded, then revoked", nil, []Mark{recorded(1, "c1", "1000-0"), {Kind: MarkRevoke, Agent: "a", At: 2 * sec, Container: "c1"}}, false},
		{"I5", "revoked, then recorded", nil, []Mark{{Kind: MarkRevoke, Agent: "a", At: sec, Container: "c1"}, recorded(2, "c1", "1000-0")}, true},

		{"H1", "recorded alive", nil, []Mark{recorded(1, "c1", "1000-0")}, false},
		{"H1", "recorded when it was removed", func(p *Past) { p.set("c1", func(l *Life) { l.Removed = 2 * sec }) }, []Mark{recorded(3, "c1", "1000-0")}, true},
		{"H1", "recorded and never made", nil, []Mark{recorded(1, "c9", "1000-0")}, true},
		{"H1", "another agent's is recorded", nil, []Mark{recorded(1, "other", "1000-0")}, true},

		{"H2", "removed after an end", func(p *Past) { p.set("c1", func(l *Life) { l.Removed = 3 * sec }) }, []Mark{recorded(1, "c1", "1000-0"), endedAt(2, "2000-0")}, false},
		{"H2", "removed without a reason", func(p *Past) { p.set("c1", func(l *Life) { l.Removed = 3 * sec }) }, []Mark{recorded(1, "c1", "1000-0")}, true},
		{"H2", "removed after the end of older work", func(p *Past) { p.set("c1", func(l *Life) { l.Removed = 3 * sec }) }, []Mark{recorded(1, "c1", "1000-0"), endedAt(2, "500-0")}, true},
		{"H2", "removed before the end", func(p *Past) { p.set("c1", func(l *Life) { l.Removed = 3 * sec }) }, []Mark{recorded(1, "c1", "1000-0"), endedAt(4, "4000-0")}, true},
		{"H2", "removed when its record had lapsed", func(p *Past) { p.set("c1", func(l *Life) { l.Removed = 2*sec + ttl }) }, []Mark{recorded(1, "c1", "1000-0")}, false},
		{"H2", "removed when a reply had slid its record", func(p *Past) { p.set("c1", func(l *Life) { l.Removed = 2*sec + ttl }) }, []Mark{recorded(1, "c1", "1000-0"), replied(50, "r1", "1500-0", "c1")}, true},
		{"H2", "removed after it died", func(p *Past) { p.set("c1", func(l *Life) { l.Died, l.Removed = 2*sec, 3*sec }) }, []Mark{recorded(1, "c1", "1000-0")}, false},
		{"H2", "removed when superseded", func(p *Past) { p.set("c1", func(l *Life) { l.Removed = 3 * sec }) }, []Mark{recorded(1, "c1", "1000-0"), recorded(2, "c2", "2000-0", "vector")}, false},
		{"H2", "removed before it was superseded", func(p *Past) { p.set("c1", func(l *Life) { l.Removed = 2 * sec }) }, []Mark{recorded(1, "c1", "1000-0"), recorded(3, "c2", "2000-0", "vector")}, true},
		{"H2", "its owner left", func(p *Past) {
			p.set("c1", func(l *Life) { l.Removed = 3 * sec })
			p.Truth.Owners["k1"] = OwnerLife{Agent: "a", Seq: 1, Down: sec}
		}, []Mark{recorded(1, "c1", "1000-0"), {Kind: MarkLeave, Agent: "a", At: 2 * sec, Owner: "k1"}}, false},
		{"H2", "another owner left", func(p *Past) {
			p.set("c1", func(l *Life) { l.Removed = 3 * sec })
			p.Truth.Owners["k2"] = OwnerLife{Agent: "a", Seq: 1, Down: sec}
		}, []Mark{recorded(1, "c1", "1000-0"), {Kind: MarkLeave, Agent: "a", At: 2 * sec, Owner: "k2"}}, true},
		{"H2", "a flush forgot it, and it was removed", func(p *Past) { p.set("c1", func(l *Life) { l.Removed = 3 * sec }) }, []Mark{recorded(1, "c1", "1000-0"), {Kind: MarkFlush, At: 2 * sec}}, true},
		{"H2", "the flush swallowed the end", func(p *Past) {
			p.set("c1", func(l *Life) { l.Removed = 3 * sec })
			p.Tasks = map[string][]Worked{"a": {{Task: "t1", At: 1}, {Task: "", At: sec}}}
		}, []Mark{recorded(1, "c1", "1000-0"), {Kind: MarkFlush, At: 2 * sec}}, false},

		{"H3", "recorded after an older end", nil, []Mark{endedAt(1, "500-0"), recorded(2, "c1", "1000-0")}, false},
		{"H3", "recorded after a younger end", nil, []Mark{endedAt(1, "1500-0"), recorded(2, "c1", "1000-0")}, true},

		{"H4", "superseded for a feature", nil, []Mark{recorded(1, "c1", "1000-0"), recorded(2, "c2", "2000-0", "vector")}, false},
		{"H4", "superseded for nothing", nil, []Mark{recorded(1, "c1", "1000-0"), recorded(2, "c2", "2000-0")}, true},
		{"H4", "superseded for less", nil, []Mark{recorded(1, "c1", "1000-0", "vector"), recorded(2, "c2", "2000-0", "postgis")}, true},
		{"H4", "superseded when dead", func(p *Past) { p.set("c1", func(l *Life) { l.Died = 2 * sec }) }, []Mark{recorded(1, "c1", "1000-0"), recorded(3, "c2", "2000-0")}, false},
		{"H4", "the dead is struck", func(p *Past) { p.set("c1", func(l *Life) { l.Died = 2 * sec }) }, []Mark{recorded(1, "c1", "1000-0"), {Kind: MarkStrike, Agent: "a", Engine: "pg", At: 3 * sec, Container: "c1"}}, false},
		{"H4", "the healthy is struck", nil, []Mark{recorded(1, "c1", "1000-0"), {Kind: MarkStrike, Agent: "a", Engine: "pg", At: 3 * sec, Container: "c1"}}, true},

		{"H5", "one reply", nil, []Mark{recorded(1, "c1", "1000-0"), replied(2, "r1", "1000-0", "c1")}, false},
		{"H5", "said again without credentials", nil, []Mark{recorded(1, "c1", "1000-0"), replied(2, "r1", "1000-0", "c1"), replied(3, "r1", "1000-0")}, false},
		{"H5", "said again with credentials", nil, []Mark{recorded(1, "c1", "1000-0"), replied(2, "r1", "1000-0", "c1"), replied(3, "r1", "1000-0", "c1")}, true},
		{"H5", "two answers", nil, []Mark{recorded(1, "c1", "1000-0"), replied(2, "r1", "1000-0", "c1"), {Kind: MarkReply, Agent: "a", At: 3 * sec, Request: "r1", State: "failed"}}, true},
		{"H5", "what is not recorded", nil, []Mark{replied(2, "r1", "1000-0", "c1")}, true},
		{"H5", "another agent's", nil, []Mark{recorded(1, "other", "1000-0"), replied(2, "r1", "1000-0", "other")}, true},

		{"H4", "the dying is struck", func(p *Past) { p.set("c1", func(l *Life) { l.Dying, l.Died = 2*sec, 4*sec }) }, []Mark{recorded(1, "c1", "1000-0"), {Kind: MarkStrike, Agent: "a", Engine: "pg", At: 3 * sec, Container: "c1"}}, false},
		{"H4", "what dies later is struck", func(p *Past) { p.set("c1", func(l *Life) { l.Dying, l.Died = 4*sec, 5*sec }) }, []Mark{recorded(1, "c1", "1000-0"), {Kind: MarkStrike, Agent: "a", Engine: "pg", At: 3 * sec, Container: "c1"}}, true},

		{"H6", "published once", nil, []Mark{requested("r1"), requested("r2")}, false},
		{"H6", "published again", nil, []Mark{requested("r1"), requested("r1")}, true},
		{"H6", "a flush forgot it", nil, []Mark{requested("r1"), {Kind: MarkFlush, At: sec}, requested("r1")}, false},

		{"L1", "answered", nil, []Mark{requested("r1"), {Kind: MarkReply, Agent: "a", Request: "r1", State: "refused", Born: "500-0"}}, false},
		{"L1", "never answered", nil, []Mark{requested("r1")}, true},
		{"L1", "lost with its Redis", nil, []Mark{requested("r1"), {Kind: MarkFlush, At: sec}}, false},

		{"H7", "younger than the end before", nil, []Mark{endedAt(1, "1500-0"), recorded(2, "c2", "2000-0"), replied(3, "r1", "2000-0", "c2")}, false},
		{"H7", "older than an end before", nil, []Mark{recorded(1, "c1", "1000-0"), endedAt(2, "1500-0"), replied(3, "r1", "2000-0", "c1")}, true},
		{"H7", "of another task", func(p *Past) { p.set("c1", func(l *Life) { l.Task = "t0" }) }, []Mark{recorded(1, "c1", "1000-0"), replied(3, "r1", "2000-0", "c1")}, true},

		{"H8", "died after the check", func(p *Past) { p.set("c1", func(l *Life) { l.Died = 3*sec - 100 }) }, []Mark{recorded(1, "c1", "1000-0"), replied(3, "r1", "2000-0", "c1")}, false},
		{"H8", "dying before the check", func(p *Past) { p.set("c1", func(l *Life) { l.Dying, l.Died = 2*sec, 3*sec-100 }) }, []Mark{recorded(1, "c1", "1000-0"), replied(3, "r1", "2000-0", "c1")}, false},
		{"H8", "dead before the check", func(p *Past) { p.set("c1", func(l *Life) { l.Died = 2 * sec }) }, []Mark{recorded(1, "c1", "1000-0"), replied(3, "r1", "2000-0", "c1")}, true},

		{"P1", "claimed once", nil, []Mark{claimedAt(1, "a", "k1"), recorded(2, "p1", "1000-0")}, false},
		{"P1", "claimed by two", nil, []Mark{claimedAt(1, "a", "k1"), claimedAt(2, "b", "k9")}, true},
		{"P1", "claimed twice by one", nil, []Mark{claimedAt(1, "a", "k1"), claimedAt(2, "a", "k1")}, true},
		{"P1", "a flush swallowed the claim", nil, []Mark{claimedAt(1, "a", "k1"), {Kind: MarkFlush, At: sec}, claimedAt(2, "b", "k9")}, false},
		{"P1", "adopted, then claimed", nil, []Mark{claimedAt(1, "a", "k1"), {Kind: MarkFlush, At: sec}, adopted(2, "a"), claimedAt(3, "b", "k9")}, true},
		{"P1", "retired, then claimed", nil, []Mark{retiredAt(1), claimedAt(2, "a", "k1")}, true},
		{"P1", "retired before a flush", nil, []Mark{retiredAt(1), {Kind: MarkFlush, At: sec}, claimedAt(2, "a", "k1")}, false},
		{"P1", "what is of no pool", func(p *Past) { p.set("p1", func(l *Life) { l.Pooled = false }) }, []Mark{claimedAt(1, "a", "k1")}, true},
		{"P1", "of another engine", func(p *Past) { p.set("p1", func(l *Life) { l.Engine = "redis" }) }, []Mark{claimedAt(1, "a", "k1")}, true},
		{"I3", "claimed without the lease", nil, []Mark{func() Mark { m := claimedAt(1, "a", "k1"); m.Lease = "6"; return m }()}, true},

		{"P2", "recorded as claimed", nil, []Mark{claimedAt(1, "a", "k1"), recorded(2, "p1", "1000-0")}, false},
		{"P2", "recorded and not claimed", nil, []Mark{recorded(2, "p1", "1000-0")}, true},
		{"P2", "claimed by another", nil, []Mark{claimedAt(1, "b", "k9"), recorded(2, "p1", "1000-0")}, true},
		{"P2", "adopted by its claim", nil, []Mark{claimedAt(1, "a", "k1"), {Kind: MarkFlush, At: sec}, adopted(2, "a"), recorded(3, "p1", "1000-0")}, false},
		{"P2", "recorded after its claim was forgotten", nil, []Mark{claimedAt(1, "a", "k1"), {Kind: MarkFlush, At: sec}, recorded(2, "p1", "1000-0")}, true},
		{"P2", "adopted by another", nil, []Mark{claimedAt(1, "b", "k9"), {Kind: MarkFlush, At: sec}, adopted(2, "a")}, true},

		{"P3", "what was recorded is claimed after a flush", nil, []Mark{claimedAt(1, "a", "k1"), recorded(2, "p1", "1000-0"), {Kind: MarkFlush, At: 2 * sec}, claimedAt(3, "b", "k9")}, true},
		{"P3", "what was handed out is claimed after a flush", nil, []Mark{replied(2, "r1", "1000-0", "p1"), {Kind: MarkFlush, At: 2 * sec}, claimedAt(3, "b", "k9")}, true},
		{"P3", "nobody had it", nil, []Mark{claimedAt(1, "a", "k1"), {Kind: MarkFlush, At: 2 * sec}, claimedAt(3, "b", "k9")}, false},

		{"P3", "put in before it was seen", func(p *Past) { p.set("p1", func(l *Life) { l.Called("x", 2*sec) }) }, []Mark{stockedAt(1)}, false},
		{"P3", "put in after it was seen", func(p *Past) { p.set("p1", func(l *Life) { l.Called("x", sec) }) }, []Mark{stockedAt(2)}, true},

		// What was born in a pool is judged by its claim.
		{"H1", "recorded for its claimer", nil, []Mark{claimedAt(1, "a", "k1"), recorded(2, "p1", "1000-0")}, false},
		{"H1", "recorded for another than the store says", stored("b", "k9"), []Mark{claimedAt(1, "a", "k1"), recorded(2, "p1", "1000-0")}, true},
		{"H10", "claimed for its owner", nil, []Mark{claimedAt(1, "a", "k1"), recorded(2, "p1", "1000-0")}, false},
		{"H10", "claimed for another owner", nil, []Mark{claimedAt(1, "a", "k2"), recorded(2, "p1", "1000-0")}, true},
		{"H2", "nobody's goes at any time", func(p *Past) { p.set("p1", func(l *Life) { l.Removed = sec }) }, []Mark{retiredAt(1)}, false},
		{"H2", "a claimed one goes without a reason", func(p *Past) { p.set("p1", func(l *Life) { l.Removed = 3 * sec }) }, []Mark{claimedAt(1, "a", "k1"), recorded(2, "p1", "1000-0")}, true},
		{"I5", "revoked for one whose claim does not count", stored("a", "k1"), []Mark{{Kind: MarkRevoke, Agent: "b", At: sec, Container: "p1"}, claimedAt(2, "a", "k1"), recorded(3, "p1", "1000-0")}, false},
		{"I5", "a claimed one was revoked", nil, []Mark{claimedAt(1, "a", "k1"), {Kind: MarkRevoke, Agent: "a", At: sec, Container: "p1"}, recorded(3, "p1", "1000-0")}, true},

		{"H10", "recorded for its owner", nil, []Mark{recorded(1, "c1", "1000-0")}, false},
		{"H10", "recorded for another", nil, []Mark{recorded(1, "c3", "2000-0")}, true},
		{"H10", "handed to its owner", nil, []Mark{recorded(1, "c1", "1000-0"), replied(2, "r1", "1000-0", "c1")}, false},
		{"H10", "handed to a later owner", nil, []Mark{recorded(1, "c1", "1000-0"), replied(2, "r2", "1000-0", "c1")}, true},
		{"H10", "the living loses its sandbox", nil, []Mark{{Kind: MarkLeave, Agent: "a", At: 2 * sec, Owner: "k1"}}, true},
		{"H10", "the lease yields", nil, []Mark{{Kind: MarkLeave, Agent: "a", At: 2 * sec, Owner: "lease"}}, false},
		{"H10", "stale after an end", nil, []Mark{endedAt(1, "1500-0"), {Kind: MarkReply, Agent: "a", Request: "r1", State: "stale", Born: "1000-0"}}, false},
		{"H10", "stale without an end", nil, []Mark{endedAt(1, "500-0"), {Kind: MarkReply, Agent: "a", Request: "r1", State: "stale", Born: "1000-0"}}, true},
	}
	for _, c := range cases {
		t.Run(c.check+" "+c.name, func(t *testing.T) {
			t.Parallel()
			found, _ := world(c.change).Judge(c.marks)
			if c.broken {
				require.Contains(t, checksOf(found), c.check)
				return
			}
			require.NotContains(t, checksOf(found), c.check)
		})
	}
}

// A reply whose mark does not tell when its check began is judged by who looked when.
func TestReplyAliveByLooks(t *testing.T) {
	t.Parallel()
	m := replied(3, "r1", "2000-0", "c1")
	m.Checked = 0
	for _, c := range []struct {
		looks  []int64
		broken bool
	}{
		{nil, true}, {[]int64{sec}, true}, {[]int64{2*sec + 1}, false},
	} {
		p := world(func(p *Past) { p.set("c1", func(l *Life) { l.Died, l.Looks = 2*sec+5000, c.looks }) })
		found, _ := p.Judge([]Mark{recorded(1, "c1", "1000-0"), m})
		require.Equal(t, c.broken, slices.Contains(checksOf(found), "H8"), "looks %v: %v", c.looks, found)
	}
}

func checksOf(found []Violation) []string {
	names := make([]string, 0, len(found))
	for _, v := range found {
		names = append(names, v.Check)
	}
	return names
}
