package workertest

import (
	"slices"
	"strconv"
	"strings"
)

// MarkKind is what a script did.
type MarkKind string

// The kinds of marks that the checks know; others are counted and left alone.
const (
	MarkFlush  MarkKind = "flush"  // written by the harness: Redis was emptied
	MarkEnd    MarkKind = "end"    // the watermark was raised
	MarkLeave  MarkKind = "leave"  // an owner has gone: its sandbox ended, the watermark stays
	MarkBeat   MarkKind = "beat"   // a lease was extended
	MarkRecord MarkKind = "record" // an engine was recorded
	MarkAdopt  MarkKind = "adopt"  // a forgotten container was recorded again
	MarkStrike MarkKind = "strike" // an engine found dead was struck from the record
	MarkRevoke MarkKind = "revoke" // a container was given up for ever
	MarkReply  MarkKind = "reply"  // a terminal reply was written

	MarkRequest MarkKind = "request" // a request was published

	MarkStock  MarkKind = "stock"  // a ready container was put into its pool
	MarkClaim  MarkKind = "claim"  // an agent's run took one
	MarkRetire MarkKind = "retire" // one that nobody had claimed was given up for ever
)

// Mark is one entry of the audit stream. The scripts write it, so marks stand in the order in which things happened.
type Mark struct {
	Kind  MarkKind
	Agent string
	At    int64 // microseconds, Redis's clock

	ID   string // of an end: its stream ID
	Type string // of an end: the event's type; of a leave: who noticed

	Owner        string // the hash's owner (record, adopt, reply), or the one that left
	Engine       string
	Container    string // full ID
	Born         string // of the container, or of the reply's request
	Epoch, Lease string // the epoch of who acts, and the one that holds the lease
	Features     []string

	Task, Project string // of a claim

	Request string
	State   string
	Handed  map[string]string // of a reply with credentials: engine -> container ID
	Checked int64             // microseconds: when the check of the containers began; 0 = not told
}

// slack forgives the difference between Redis's clock, which stands still inside a script, and ours, in microseconds.
const slack = 2000

// reuse is how long a worker may take a container for what it was, while the engine's event feed stands and is silent about it,
// in microseconds.
const reuse = 100_000

// before compares two stream IDs. An empty one is before every other.
func before(a, b string) bool {
	am, as := splitID(a)
	bm, bs := splitID(b)
	return am < bm || am == bm && as < bs
}

func splitID(id string) (ms, seq int64) {
	m, s, _ := strings.Cut(id, "-")
	ms, _ = strconv.ParseInt(m, 10, 64)
	seq, _ = strconv.ParseInt(s, 10, 64)
	return ms, seq
}

// holds says whether all of want are among have.
func holds(have, want []string) bool {
	return !slices.ContainsFunc(want, func(f string) bool { return !slices.Contains(have, f) })
}
