package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// DeadLetter is an entry of the work stream that could not be worked on. It holds no credentials.
type DeadLetter struct {
	ID          string    `json:"id"`
	KeptAt      time.Time `json:"kept_at"`
	Entry       string    `json:"entry"` // the ID it had in the work stream
	PublishedAt time.Time `json:"published_at"`
	Cause       string    `json:"cause"` // undecodable, refused, exhausted, panicked, unknown
	Reason      string    `json:"reason"`
	Retried     int       `json:"retried"` // how often it was put back before

	// What it says; empty where it cannot be decoded, and Problem then says why.
	EventID string `json:"event_id"`
	Type    string `json:"type"`
	Agent   string `json:"agent"`
	Source  string `json:"source"`
	Problem string `json:"problem"`

	// Fields are the entry's, as they stood; only of a letter that is shown alone.
	Fields map[string]string `json:"fields,omitempty"`
}

// DeadLetterPage is a page of dead letters, newest first. NextBefore is empty on the last page.
type DeadLetterPage struct {
	Letters    []DeadLetter `json:"letters"`
	NextBefore string       `json:"next_before"`
}

// RetriedLetter is a dead letter that was put back.
type RetriedLetter struct {
	ID       string `json:"id"`
	StreamID string `json:"stream_id"` // its new ID in the work stream
}

// DeadLetters reads one page, newest first; before is the NextBefore of the page before, limit 1 to 500, 0 for 50. Operator.
func (c *Client) DeadLetters(ctx context.Context, before string, limit int) (*DeadLetterPage, error) {
	q := url.Values{}
	set(q, "before", before)
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	return get[DeadLetterPage](ctx, c, withQuery("/api/v1/dead", q))
}

// DeadLetter reads one dead letter; a 404 *Error when there is none. Operator.
func (c *Client) DeadLetter(ctx context.Context, id string) (*DeadLetter, error) {
	return get[DeadLetter](ctx, c, letterPath(id))
}

// RetryDeadLetter puts a dead letter back to be worked on; a 409 *Error says why it was not. Operator.
func (c *Client) RetryDeadLetter(ctx context.Context, id string) (*RetriedLetter, error) {
	return send[RetriedLetter](ctx, c, http.MethodPost, letterPath(id)+"/retry", nil)
}

// DropDeadLetter removes a dead letter for good. Operator.
func (c *Client) DropDeadLetter(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, letterPath(id), nil, nil)
}

func letterPath(id string) string { return "/api/v1/dead/" + url.PathEscape(id) }
