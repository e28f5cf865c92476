package events

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Replies reads what stands in a reply stream after the given entry ("" = from the start), without waiting. It is empty
// while a known request has no entry yet, and ErrExpired when the request is unknown, another agent's, or its reply has
// lapsed.
func (b *Bus) Replies(ctx context.Context, slug, requestID, after string) ([]Reply, error) {
	s, err := b.look(ctx, slug, requestID, after)
	return s.replies, err
}

// sight is a reply stream at one moment.
type sight struct {
	replies []Reply
	gateway string // whose inbox has the notices
	lapsed  bool   // it was answered, and the reply is gone
}

func (b *Bus) look(ctx context.Context, slug, requestID, after string) (sight, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	doing := "read the replies to request " + requestID
	if s, err := b.ending(ctx, doing, slug, requestID, after); err != nil || len(s.replies) > 0 {
		return s, err
	}
	pipe := b.calls.TxPipeline()
	read := pipe.XRange(ctx, b.ReplyStream(slug, requestID), following(after), "+")
	there := pipe.Exists(ctx, b.ReplyStream(slug, requestID))
	request := pipe.HMGet(ctx, b.requestKey(requestID), "born", "state", "slug", "gateway")
	if _, err := pipe.Exec(ctx); err != nil {
		return sight{}, failed(doing, err)
	}
	known, answered := request.Val()[0] != nil, request.Val()[1] != nil
	whose, _ := request.Val()[2].(string)
	gateway, _ := request.Val()[3].(string)
	s := sight{gateway: gateway}
	if whose != "" && whose != slug {
		return s, fmt.Errorf("%s: %w", doing, ErrExpired)
	}
	if there.Val() == 0 && (answered || !known) {
		s.lapsed = answered
		return s, fmt.Errorf("%s: %w", doing, ErrExpired)
	}
	var err error
	if s.replies, err = b.replies(slug, read.Val()); err != nil {
		return s, fmt.Errorf("%s: %w", doing, err)
	}
	return s, nil
}

// ending reads what ends with a terminal reply, most often all there is to a request: then nothing else need be asked. It is
// empty where there is none yet.
func (b *Bus) ending(ctx context.Context, doing, slug, requestID, after string) (s sight, err error) {
	found, err := b.calls.XRange(ctx, b.ReplyStream(slug, requestID), following(after), "+").Result()
	if err != nil {
		return s, failed(doing, err)
	}
	if !ends(found) {
		return s, nil
	}
	if s.replies, err = b.replies(slug, found); err != nil {
		return s, fmt.Errorf("%s: %w", doing, err)
	}
	return s, nil
}

// ends says that a reply stream was read to its end: the terminal entry is its last.
func ends(found []redis.XMessage) bool {
	return len(found) > 0 && text(found[len(found)-1], "state") != ""
}

// following is where a range begins that leaves the given entry out.
func following(after string) string {
	if after == "" {
		return "-"
	}
	return "(" + after
}

func (b *Bus) replies(slug string, messages []redis.XMessage) ([]Reply, error) {
	out := make([]Reply, 0, len(messages))
	for _, m := range messages {
		r, err := b.replyOf(slug, m)
		if err != nil {
			return nil, fmt.Errorf("read reply entry %s: %w", m.ID, err)
		}
		out = append(out, r)
	}
	return out, nil
}

// handed is one engine as a terminal reply holds it.
type handed struct {
	By    made  `json:"by"`
	Entry Entry `json:"entry"`
}

// unreadable names the part of a reply that is not what was written; the part itself may hold credentials.
func unreadable(part string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("read the %s of a reply: %w", part, err)
}

// replyOf reads an entry of a reply stream. One that cannot be opened here is read as a failure that says so.
func (b *Bus) replyOf(slug string, m redis.XMessage) (Reply, error) {
	r := Reply{ID: m.ID, State: State(text(m, "state")), Task: text(m, "task"), Expires: millis(text(m, "expires"))}
	if line := text(m, "progress"); line != "" {
		r.Progress = &Progress{}
		return r, unreadable("progress", json.Unmarshal([]byte(line), r.Progress))
	}
	if body := text(m, "body"); body != "" {
		r.Body = json.RawMessage(body)
		return r, nil
	}
	if r.State != StateOK {
		if r.Refusal = Stated(r.State); r.Refusal == nil {
			r.Refusal = &Refusal{Guard: 8, Message: "the request failed, and the cause is not known any more", Remediate: "call request_sandbox again", Retryable: true}
		}
		if raw := text(m, "refusal"); raw != "" {
			return r, unreadable("refusal", json.Unmarshal([]byte(raw), r.Refusal))
		}
		return r, nil
	}
	raw := text(m, "engines")
	if r.Blanked = raw == ""; r.Blanked {
		return r, nil
	}
	var engines map[string]handed
	err := json.Unmarshal([]byte(raw), &engines)
	if err != nil {
		return r, unreadable("engines", err)
	}
	r.Engines = make(map[string]EngineReply, len(engines))
	for name, h := range engines {
		if h.Entry, err = b.open(slug, name, h.Entry); err != nil {
			return Reply{ID: r.ID, State: StateFailed, Task: r.Task, Expires: r.Expires, Refusal: unopened(err)}, nil
		}
		r.Engines[name] = EngineReply{Outcome: h.By.Outcome, Reason: h.By.Reason, Features: h.Entry.Features, Payload: h.Entry.Payload}
	}
	return r, nil
}

// timeOf is the moment that a stream ID names.
func timeOf(id string) time.Time {
	head, _, _ := strings.Cut(id, "-")
	n, err := strconv.ParseInt(head, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(n)
}

// earlier compares two stream IDs as points in time.
func earlier(x, y string) bool {
	a, b := timeOf(x), timeOf(y)
	if !a.Equal(b) {
		return a.Before(b)
	}
	return number(x) < number(y)
}

// number is a stream ID's second half.
func number(id string) uint64 {
	_, tail, _ := strings.Cut(id, "-")
	n, err := strconv.ParseUint(tail, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
