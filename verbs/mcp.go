package verbs

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/roboco/sandboxd/client"
)

// serveMCP answers POST /mcp (streamable HTTP). Each call stands for itself: no session is kept, so that whose call it is
// comes from its own token and from nothing that an earlier one left behind.
func (g *Gateway) serveMCP(w http.ResponseWriter, r *http.Request, c *call) error {
	raw, err := body(r) // here, so that one that is too large is answered as everywhere
	if err != nil {
		return err
	}
	r.Body = io.NopCloser(bytes.NewReader(raw))
	mayLast(w)
	gone := r.Context()
	asker := client.RequesterFunc(func(ctx context.Context, in client.SandboxRequest, each func(client.Progress)) (*client.Envelope, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(gone, cancel)() // whoever stops waiting cancels nothing but the waiting
		one := *c
		one.requestID = newID()
		env, err := g.ask(ctx, &one, in, each)
		return &env, err
	})
	srv := client.MCPServer(asker, client.MCPConfig{
		Version: g.cfg.Version, Listed: slices.Contains(g.cfg.Roles[RequestSandbox], c.who.role),
		Tick: g.cfg.ProgressEvery, Limit: g.cfg.RequestLimit, CorrelationID: c.correlationID,
	})
	// A body is read as JSON whatever the content type says.
	r.Header.Set("Content-Type", "application/json")
	mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return srv }, &mcp.StreamableHTTPOptions{
		Stateless:                    true,
		PropagateRequestCancellation: true,
		MaxRequestBodyBytes:          g.cfg.MaxBody,
		// A browser that is led here by a forged name has no token to send.
		DisableLocalhostProtection: true,
	}).ServeHTTP(w, r)
	return nil
}
