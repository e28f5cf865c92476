package events

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed retry.lua
var retryLua string

// Cause is the kind of reason that an entry became a dead letter for.
type Cause string

// The causes.
const (
	CauseUndecodable Cause = "undecodable" // it is no event
	CauseRefused     Cause = "refused"     // it is an event that can never be worked on
	CauseExhausted   Cause = "exhausted"   // it was begun too often and never came to an end
	CausePanicked    Cause = "panicked"    // its handler panicked too often
	CauseUnknown     Cause = "unknown"     // none is noted
)

// Letter is a dead letter: an entry of the work stream that could not be worked on.
type Letter struct {
	ID     string    // a stream ID of its own
	At     time.Time // when it was kept
	Entry  string    // the ID it had in the work stream: the event's time
	Cause  Cause
	Reason string
	// Retried is how often it has been put back before.
	Retried int
	// Event is what it says; nil where it cannot be decoded, and Problem then says why.
	Event   *Event
	Problem string
	// Fields are the entry's, as they stood. Cut: it was larger than is kept.
	Fields map[string]string
	Cut    bool

	foreign bool
	rid     string
}

// ErrNoLetter says that there is no dead letter of this ID.
var ErrNoLetter = errors.New("no such dead letter")

// RetryError says why a dead letter was not put back. It stays where it is.
type RetryError struct{ Problem string }

// Error is the problem.
func (e *RetryError) Error() string { return e.Problem }

var streamIDShape = regexp.MustCompile(`^\d{1,20}-\d{1,20}$`)

// maxLetters is the most that one call of DeadLetters gives.
const maxLetters = 500

// DeadLetters lists dead letters, the newest first: at most limit (1 to 500) that are older than before, a letter's ID, or
// from the newest on where that is empty. next is the before of the page that follows, empty after the last one.
func (b *Bus) DeadLetters(ctx context.Context, before string, limit int) (letters []Letter, next string, err error) {
	from := "+"
	if before != "" {
		if !streamIDShape.MatchString(before) {
			return nil, "", &DecodeError{Attribute: "before", Problem: "must be the ID of a dead letter"}
		}
		from = "(" + before
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	limit = min(max(limit, 1), maxLetters)
	found, err := b.calls.XRevRangeN(ctx, b.key("dead"), from, "-", int64(limit)+1).Result()
	if err != nil {
		return nil, "", failed("list the dead letters", err)
	}
	if len(found) > limit {
		found = found[:limit]
		next = found[limit-1].ID
	}
	letters = make([]Letter, len(found))
	for i, m := range found {
		letters[i] = letterOf(m)
	}
	return letters, next, nil
}

// Letter reads one dead letter; ErrNoLetter when there is none.
func (b *Bus) Letter(ctx context.Context, id string) (Letter, error) {
	doing := "read dead letter " + shorten(id)
	if !streamIDShape.MatchString(id) {
		return Letter{}, fmt.Errorf("%s: %w", doing, ErrNoLetter)
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	found, err := b.calls.XRange(ctx, b.key("dead"), id, id).Result()
	if err != nil {
		return Letter{}, failed(doing, err)
	}
	if len(found) == 0 {
		return Letter{}, fmt.Errorf("%s: %w", doing, ErrNoLetter)
	}
	return letterOf(found[0]), nil
}

// DropLetter removes a dead letter for good; ErrNoLetter when there is none.
func (b *Bus) DropLetter(ctx context.Context, id string) error {
	doing := "drop dead letter " + shorten(id)
	if !streamIDShape.MatchString(id) {
		return fmt.Errorf("%s: %w", doing, ErrNoLetter)
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	n, err := b.calls.XDel(ctx, b.key("dead"), id).Result()
	if err == nil && n == 0 {
		return fmt.Errorf("%s: %w", doing, ErrNoLetter)
	}
	return failed(doing, err)
}

type retryArgs struct {
	Letter  string `json:"letter"`
	Slug    string `json:"slug"`
	RID     string `json:"rid"`
	Entry   string `json:"entry"`
	Request int    `json:"request"`
	Foreign int    `json:"foreign"`
	At      string `json:"at"`
	Now     int    `json:"now"`
}

// RetryLetter puts a dead letter back into the work stream under a fresh time, which it gives, and takes it from the dead
// letters. An end that was published is always taken: removing is decided anew. A request is taken only while somebody
// may still wait for it. *RetryError says why not, ErrNoLetter that there is none, ErrFull that the stream is.
func (b *Bus) RetryLetter(ctx context.Context, id string) (streamID string, err error) {
	l, err := b.Letter(ctx, id)
	if err != nil {
		return "", err
	}
	switch {
	case l.Cut:
		return "", &RetryError{"the entry was larger than is kept, so it is not whole any more: publish the event again"}
	case l.Event == nil:
		return "", &RetryError{"the entry cannot be decoded (" + l.Problem + "): have it published again as an event, and drop this letter"}
	}
	args := retryArgs{Letter: l.ID, Slug: l.Event.Subject, RID: l.rid, At: l.Entry}
	if l.Event.Type == SandboxRequested || l.Event.Type == LogsRequested {
		args.Request = 1
	}
	if l.foreign {
		args.Foreign = 1
	}
	if l.foreign && l.Event.bearsOnPresent() {
		args.Now = 1
	}
	v, err := b.list(ctx, "put dead letter "+id+" back", 2, b.scripts.retry, b.keys(l.Event.Subject, l.rid, l.Event.ID), args)
	if err != nil {
		return "", err
	}
	switch v[0] {
	case "OK":
		return v[1], nil
	case "GONE":
		return "", fmt.Errorf("put dead letter %s back: %w", id, ErrNoLetter)
	case "FULL":
		return "", fmt.Errorf("put dead letter %s back: %w", id, ErrFull)
	}
	return "", &RetryError{refusedRetry(v[0], v[1])}
}

// bearsOnPresent says that an event, given effect late, changes whatever the agent works on by then.
func (e Event) bearsOnPresent() bool {
	var d struct {
		TaskID string `json:"task_id"`
		Owner  string `json:"owner"`
	}
	_ = json.Unmarshal(e.Data, &d) // it was decoded before
	switch e.Type {
	case WorkStarted:
		return true
	case WorkEnded:
		return d.TaskID == ""
	case AgentStopped:
		return d.Owner == ""
	default: // a request is judged by who waits for it
		return false
	}
}

// refusedRetry gives the words of a verdict of retry.lua.
func refusedRetry(verdict, state string) string {
	switch verdict {
	case "ANSWERED":
		return "the request has its answer already (" + state + "), and nobody waits for another: the agent is to ask again"
	case "FORGOTTEN":
		return "nothing is known of the request any more, so nobody waits for it: the agent is to ask again"
	case "LATE":
		return "the request's time to be taken is over, and whoever made it was told so: the agent is to ask again"
	case "OVERTAKEN":
		return "the agent's work has begun or ended anew since this event, and it would undo that: publish a new event if it still holds"
	default:
		return "it cannot be put back: " + verdict
	}
}

// letterOf reads a dead letter as letter in prelude.lua writes it.
func letterOf(m redis.XMessage) Letter {
	l := Letter{
		ID: m.ID, At: timeOf(m.ID), Entry: text(m, "entry"), Cause: Cause(text(m, "cause")), Reason: text(m, "reason"),
		Cut: text(m, "cut") == "1", Fields: map[string]string{},
	}
	if l.Cause == "" {
		l.Cause = CauseUnknown
	}
	was := redis.XMessage{ID: l.Entry, Values: map[string]any{}}
	for name := range m.Values {
		if bare, ok := strings.CutPrefix(name, "was:"); ok {
			was.Values[bare] = m.Values[name]
			l.Fields[bare] = text(m, name)
		}
	}
	if n, err := strconv.Atoi(l.Fields["retried"]); err == nil {
		l.Retried = n
	}
	delete(l.Fields, "retried")
	d, err := deliver(was, "")
	l.foreign = d.Foreign
	if err != nil {
		l.Problem = err.Error()
		return l
	}
	l.Event, l.rid = &d.Event, d.rid
	return l
}
