package simwire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/worker"
	"github.com/roboco/sandboxd/worker/workertest"
)

// Client uses an engine that another process serves. It implements worker.Runtime and workertest.Wire; a server that does
// not answer is engines.ErrUnavailable. Its methods are safe for concurrent use.
type Client struct {
	http *http.Client
}

var (
	_ worker.Runtime  = (*Client)(nil)
	_ workertest.Wire = (*Client)(nil)
)

// Dial makes a client of the server at this unix socket; one where nobody listens is an error.
func Dial(socket string) (*Client, error) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	probe, err := dial(context.Background(), "", "")
	if err != nil {
		return nil, fmt.Errorf("dial the simulated engine: %w", err)
	}
	_ = probe.Close()
	return &Client{http: &http.Client{Transport: &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 64}}}, nil
}

// Engines is workertest.Engines with the servers behind the client.
func Engines(c *Client) engines.Registry { return workertest.Engines(c) }

// Close gives connections back that are not in use.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// ask makes one call; on is given every frame but the last.
func (c *Client) ask(ctx context.Context, method string, args call, on func(frame)) (frame, error) {
	f, err := c.exchange(ctx, method, args, on)
	switch {
	case err != nil && ctx.Err() != nil:
		return frame{}, fmt.Errorf("%s: %w: %w", method, engines.ErrUnavailable, ctx.Err())
	case err != nil:
		return frame{}, fmt.Errorf("%s: %w: %w", method, engines.ErrUnavailable, err)
	}
	return f, f.Failure.err()
}

func (c *Client) exchange(ctx context.Context, method string, args call, on func(frame)) (frame, error) {
	body, err := json.Marshal(args)
	if err != nil {
		return frame{}, err
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://engine/"+method, bytes.NewReader(body))
	if err != nil {
		return frame{}, err
	}
	a, err := c.http.Do(q)
	if err != nil {
		return frame{}, err
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(a.Body, 1<<10))
		return frame{}, fmt.Errorf("%s: %s", a.Status, said)
	}
	for frames := json.NewDecoder(a.Body); ; {
		var f frame
		if err := frames.Decode(&f); err != nil {
			return frame{}, err
		}
		if f.Last {
			_, _ = io.Copy(io.Discard, a.Body) // so that the connection can be used again
			return f, nil
		}
		if on != nil {
			on(f)
		}
	}
}

// Create makes a container that does not run.
func (c *Client) Create(ctx context.Context, l engines.Launch) (string, error) {
	f, err := c.ask(ctx, "create", call{Launch: &l}, nil)
	return f.Text, err
}

// Start begins a life.
func (c *Client) Start(ctx context.Context, id string) error {
	_, err := c.ask(ctx, "start", call{ID: id}, nil)
	return err
}

// Rename gives a container another name.
func (c *Client) Rename(ctx context.Context, id, name string) error {
	_, err := c.ask(ctx, "rename", call{ID: id, Name: name}, nil)
	return err
}

// Inspect looks at one container, by full ID or name.
func (c *Client) Inspect(ctx context.Context, idOrName string) (engines.Container, error) {
	f, err := c.ask(ctx, "inspect", call{ID: idOrName}, nil)
	if err != nil || f.Container == nil {
		return engines.Container{}, err
	}
	return *f.Container, nil
}

// List gives the containers with these labels.
func (c *Client) List(ctx context.Context, labels map[string]string) ([]engines.Container, error) {
	f, err := c.ask(ctx, "list", call{Labels: labels}, nil)
	return f.Containers, err
}

// ListNamed gives the containers whose name begins with prefix.
func (c *Client) ListNamed(ctx context.Context, prefix string) ([]engines.Container, error) {
	f, err := c.ask(ctx, "named", call{Name: prefix}, nil)
	return f.Containers, err
}

// Logs gives the last lines of a container's log.
func (c *Client) Logs(ctx context.Context, id string, lines int) (string, error) {
	f, err := c.ask(ctx, "logs", call{ID: id, Lines: lines}, nil)
	return f.Text, err
}

// Remove takes a container of ours away.
func (c *Client) Remove(ctx context.Context, id string, grace time.Duration) error {
	_, err := c.ask(ctx, "remove", call{ID: id, Grace: grace}, nil)
	return err
}

// WaitExit waits until a container runs no more.
func (c *Client) WaitExit(ctx context.Context, id string) (int, error) {
	f, err := c.ask(ctx, "wait", call{ID: id}, nil)
	return f.Code, err
}

// Events reports what happens to containers until ctx ends or the feed breaks.
func (c *Client) Events(ctx context.Context, connected func(), found func(engines.Event)) error {
	_, err := c.ask(ctx, "events", call{}, func(f frame) {
		switch {
		case f.Connected:
			connected()
		case f.Event != nil:
			found(*f.Event)
		}
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// EnsureImage gets an image and reports how far it has come.
func (c *Client) EnsureImage(ctx context.Context, image string, progress func(engines.PullProgress)) error {
	_, err := c.ask(ctx, "image", call{Name: image}, func(f frame) {
		if f.Progress != nil && progress != nil {
			progress(*f.Progress)
		}
	})
	var p *engines.PullError
	if err != nil && !errors.As(err, &p) { // the server is gone
		return &engines.PullError{Image: image, Retryable: true, Cause: err}
	}
	return err
}

// EnsureNetwork makes a network where it is absent.
func (c *Client) EnsureNetwork(ctx context.Context, name string) error {
	_, err := c.ask(ctx, "network", call{Name: name}, nil)
	return err
}

// HostID names the engine.
func (c *Client) HostID(ctx context.Context) (string, error) {
	f, err := c.ask(ctx, "host", call{}, nil)
	return f.Text, err
}

// ImageID is the digest behind an image's name.
func (c *Client) ImageID(ctx context.Context, image string) (string, error) {
	f, err := c.ask(ctx, "imageid", call{Name: image}, nil)
	return f.Text, err
}

// Derive builds an image.
func (c *Client) Derive(ctx context.Context, d engines.Derivation) error {
	_, err := c.ask(ctx, "derive", call{Derivation: &d}, nil)
	return err
}

// DerivedImages lists the images that were built.
func (c *Client) DerivedImages(ctx context.Context) ([]engines.Image, error) {
	f, err := c.ask(ctx, "derived", call{}, nil)
	return f.Images, err
}

// RemoveDerived removes one of them.
func (c *Client) RemoveDerived(ctx context.Context, id string) error {
	_, err := c.ask(ctx, "underive", call{ID: id}, nil)
	return err
}

// Ping is nil when the engine answers.
func (c *Client) Ping(ctx context.Context) error {
	_, err := c.ask(ctx, "ping", call{}, nil)
	return err
}

// Query makes one exchange with a simulated server.
func (c *Client) Query(ctx context.Context, q workertest.Query) error {
	_, err := c.ask(ctx, "query", call{Query: &q}, nil)
	return err
}

// Capacity tells what the engine's machine has.
func (c *Client) Capacity(ctx context.Context) (engines.Capacity, error) {
	f, err := c.ask(ctx, "capacity", call{}, nil)
	if err != nil || f.Capacity == nil {
		return engines.Capacity{}, err
	}
	return *f.Capacity, nil
}
