package verbs

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
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
	if !json.Valid(raw) {
		rpcError(w, http.StatusBadRequest, jsonrpc.CodeParseError, "the body is not JSON")
		return nil
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
	}).ServeHTTP(&rpcAnswer{ResponseWriter: w}, r)
	return nil
}

// rpcError answers with an error of JSON-RPC that belongs to no message.
func rpcError(w http.ResponseWriter, status, code int, message string) {
	writeJSON(w, status, map[string]any{
		"jsonrpc": "2.0", "id": nil, "error": map[string]any{"code": code, "message": message},
	})
}

// rpcAnswer makes errors of JSON-RPC of what the transport refuses in plain text.
type rpcAnswer struct {
	http.ResponseWriter

	refused int // the status of a refusal whose text is still to come
}

// WriteHeader keeps a refusal back until its text is there.
func (a *rpcAnswer) WriteHeader(status int) {
	if status >= http.StatusBadRequest && strings.HasPrefix(a.Header().Get("Content-Type"), "text/plain") {
		a.refused = status
		return
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write answers with the refusal, or passes on what is none.
func (a *rpcAnswer) Write(b []byte) (int, error) {
	if a.refused == 0 {
		return a.ResponseWriter.Write(b) //nolint:wrapcheck // an io.Writer gives its own errors
	}
	rpcError(a.ResponseWriter, a.refused, jsonrpc.CodeInvalidRequest, strings.TrimSpace(string(b)))
	return len(b), nil
}

// Flush sends what is written.
func (a *rpcAnswer) Flush() {
	if f, ok := a.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// Unwrap is for http.ResponseController.
func (a *rpcAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
