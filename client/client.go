package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// DefaultURL is where a gateway listens unless it is told otherwise.
const DefaultURL = "http://127.0.0.1:8420"

// answerLimit bounds what is read of one answer, in bytes.
const answerLimit = 16 << 20

// Config of a Client.
type Config struct {
	URL   string // of the gateway; DefaultURL
	Token string // bearer token
	// HTTP makes the calls; nil is a client with its own connections. It should have no overall timeout: a request for
	// a sandbox may wait for minutes, and every other call has Timeout.
	HTTP    *http.Client
	Timeout time.Duration // of every call but request_sandbox; 30 s
}

// Client calls one gateway with one token. It is safe for concurrent use.
type Client struct {
	base    string
	token   string
	http    *http.Client
	timeout time.Duration
}

// New makes a client; nothing is called yet.
func New(cfg Config) (*Client, error) {
	if cfg.URL == "" {
		cfg.URL = DefaultURL
	}
	u, err := url.Parse(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("read the gateway's URL: %w", err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("read the gateway's URL %q: want http://host:port", u.Redacted())
	}
	if cfg.HTTP == nil {
		cfg.HTTP = &http.Client{}
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 30 * time.Second
	}
	return &Client{base: strings.TrimRight(cfg.URL, "/"), token: cfg.Token, http: cfg.HTTP, timeout: cfg.Timeout}, nil
}

// call sends in as JSON (nil sends no body) and reads the answer into out (nil drops it). Anything but 2xx is an *Error.
func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	resp, err := c.send(ctx, method, path, in, nil)
	if err != nil {
		return err
	}
	defer closeBody(resp)
	return decode(resp, method+" "+path, out)
}

// send makes one HTTP call; the caller closes the body.
func (c *Client) send(ctx context.Context, method, path string, in any, header http.Header) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("write the body of %s %s: %w", method, path, err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	maps.Copy(req.Header, header)
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("reach the gateway: %w", err)
	}
	return resp, nil
}

// decode reads one answer.
func decode(resp *http.Response, what string, out any) error {
	b, err := io.ReadAll(io.LimitReader(resp.Body, answerLimit))
	if err != nil {
		return fmt.Errorf("read the answer to %s: %w", what, err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return asError(resp.StatusCode, b)
	}
	if out == nil || resp.StatusCode == http.StatusNoContent {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("read the answer to %s: %w", what, err)
	}
	return nil
}

// closeBody lets the connection be used again.
func closeBody(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
	_ = resp.Body.Close()
}

// Error is a refusal: the gateway answered, and the answer is no. HTTPStatus is 200 for the guards of a verb.
type Error struct {
	HTTPStatus int
	Envelope   Envelope
}

// Error gives message and remedy. An envelope that is an error holds no credentials, and none are printed.
func (e *Error) Error() string {
	s := e.Envelope.Message
	if s == "" {
		s = fmt.Sprintf("the gateway answered %d %s", e.HTTPStatus, http.StatusText(e.HTTPStatus))
	}
	if e.Envelope.Remediate != "" {
		s += " (" + e.Envelope.Remediate + ")"
	}
	return s
}

// Code is the envelope's error, or empty.
func (e *Error) Code() string {
	if e.Envelope.Error == nil {
		return ""
	}
	return *e.Envelope.Error
}

// asError reads an error's body; what is no envelope (a proxy's page) is told by its status alone.
func asError(status int, body []byte) error {
	e := &Error{HTTPStatus: status}
	var env Envelope
	if json.Unmarshal(body, &env) == nil && env.Error != nil {
		e.Envelope = env
	}
	e.Envelope.Evidence = nil
	return e
}

// IsStatus says whether err is a refusal with this HTTP status.
func IsStatus(err error, status int) bool {
	var e *Error
	return errors.As(err, &e) && e.HTTPStatus == status
}
