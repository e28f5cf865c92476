package events

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

//go:embed begin.lua
var beginLua string

// Verdict is what begin decided.
type Verdict string

// The verdicts of Begin.
const (
	Lost  Verdict = "LOST"  // the entry is another consumer's by now: drop it
	Done  Verdict = "DONE"  // answered and finished here
	Again Verdict = "AGAIN" // what the guards saw has changed: look again
	// Busy: another run is under way, or the caller has no room for one: the entry is parked, drop it.
	Busy Verdict = "BUSY"
	// Full: Config.Max agents hold a sandbox, and this one holds none: refuse it.
	Full Verdict = "FULL"
	// Waited: no worker has had room for longer than Config.Patience: refuse it.
	Waited Verdict = "WAITED"

	Hit Verdict = "HIT" // the record covers what is asked: check the containers, then AnswerHit
	Run Verdict = "RUN" // a lease is held under Epoch: provision
)

// BeginArgs is what the guards saw.
type BeginArgs struct {
	Asked, Set []Want   // what this request must be answered with; the whole opted set with the features to have
	Seen       Tenancy  // the tenancy the guards saw alive
	HashOwner  string   // the hash's owner as it was read before the look at the engine
	Epoch      string   // the epoch this run already holds, or empty
	Gone       []string // container IDs found dead
	Moved      []string // container IDs found alive under another name
	NoRoom     bool     // the caller can take no run on: what would be one is parked, for any worker that can
	Ahead      int      // of NoRoom: how many wait within the caller
}

// Begun is the answer of Begin. Record is the whole record as it stands (without what was struck).
type Begun struct {
	Verdict Verdict
	// State is how the request ended, of the verdict Done.
	State  State
	Born   string // the request's time: what is made for it is born then
	Epoch  string
	Record map[string]Entry
	// Answered: a terminal reply stands already; only what the record lacks of the set is to be made.
	Answered bool
	// Live is how many agents hold a sandbox, of the verdict Full.
	Live int64
	// Waited is how long the request has waited for a worker with room, of the verdicts Run and Waited.
	Waited time.Duration
	// Sealed is set where an entry of the record cannot be opened here (*SealedError): its payload is missing. The run, if it
	// is one, is to be settled as failed.
	Sealed error
}

type beginArgs struct {
	handle
	Asked     []want   `json:"asked"`
	Set       []want   `json:"set"`
	Task      string   `json:"task"`
	Project   string   `json:"project"`
	Owner     string   `json:"owner"`
	HashOwner string   `json:"hash_owner"`
	Epoch     string   `json:"epoch"`
	Gone      []string `json:"gone"`
	Moved     []string `json:"moved"`
	Deadline  int64    `json:"deadline"`
	Nonce     string   `json:"nonce"`
	Room      int      `json:"room"`
	Ahead     int      `json:"ahead"`
}

// Begin opens a request that has passed the guards.
func (b *Bus) Begin(ctx context.Context, d Delivery, a BeginArgs) (Begun, error) {
	args := beginArgs{
		handle: d.handle(), Asked: wants(a.Asked), Set: wants(a.Set),
		Task: a.Seen.Task, Project: a.Seen.Project, Owner: a.Seen.Owner, HashOwner: a.HashOwner,
		Epoch: a.Epoch, Gone: full(a.Gone), Moved: full(a.Moved), Nonce: rand.Text(), Ahead: a.Ahead,
	}
	if !a.NoRoom {
		args.Room = 1
	}
	if !d.Deadline.IsZero() {
		args.Deadline = d.Deadline.UnixMilli()
	}
	doing := "begin request " + d.rid
	v, err := b.list(ctx, doing, 6, b.scripts.begin, b.keys(d.Event.Subject, d.rid, d.Event.ID), args)
	if err != nil {
		return Begun{}, err
	}
	begun := Begun{Verdict: Verdict(v[0])}
	number := func(s string) int64 {
		n, _ := strconv.ParseInt(s, 10, 64) // the script writes nothing else
		return n
	}
	switch begun.Verdict {
	case Done:
		begun.State = State(v[1])
	case Full:
		begun.Live = number(v[1])
	case Waited:
		begun.Waited = time.Duration(number(v[1])) * time.Millisecond
	case Hit, Run:
		begun.Born, begun.Epoch, begun.Answered = v[1], v[3], v[4] == "1"
		begun.Waited = time.Duration(number(v[5])) * time.Millisecond
		if err := json.Unmarshal([]byte(v[2]), &begun.Record); err != nil {
			return Begun{}, fmt.Errorf("%s: read the record: %w", doing, err)
		}
		begun.Sealed = b.openAll(d.Event.Subject, begun.Record)
	default: // the verdict says it all
	}
	return begun, nil
}
