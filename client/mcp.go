package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// ToolName is the tool that agents call.
const ToolName = "request_sandbox"

// Requester asks for the sandbox of whoever it stands for. A refusal may come as an envelope or as an *Error.
type Requester interface {
	RequestSandbox(ctx context.Context, r SandboxRequest, each func(Progress)) (*Envelope, error)
}

// RequesterFunc is a function that is a Requester.
type RequesterFunc func(ctx context.Context, r SandboxRequest, each func(Progress)) (*Envelope, error)

// RequestSandbox calls f.
func (f RequesterFunc) RequestSandbox(ctx context.Context, r SandboxRequest, each func(Progress)) (*Envelope, error) {
	return f(ctx, r, each)
}

// MCPConfig of an MCP server. Zero fields have the defaults given.
type MCPConfig struct {
	Version string // of this program; "dev"
	// Listed shows the tool: the caller's role carries it. A tool that is not shown answers all the same, with the
	// refusal that says which roles carry it.
	Listed bool
	Tick   time.Duration // progress is notified at least this often; 5 s
	Limit  time.Duration // of one call; RequestLimit
	// CorrelationID names what is refused here, before anybody is asked; a new one for each call when it is empty.
	CorrelationID string
}

// MCPServer offers the tool request_sandbox over whatever transport it is connected to. Refusals and failures are tool
// results that an agent can act on, never errors of the protocol.
func MCPServer(r Requester, cfg MCPConfig) *mcp.Server {
	if cfg.Version == "" {
		cfg.Version = "dev"
	}
	if cfg.Tick <= 0 {
		cfg.Tick = 5 * time.Second
	}
	if cfg.Limit <= 0 {
		cfg.Limit = RequestLimit
	}
	srv := mcp.NewServer(&mcp.Implementation{Name: "sandboxd", Title: "Throwaway databases", Version: cfg.Version}, &mcp.ServerOptions{
		Instructions: "Call request_sandbox when you need a database: it gives you your own throwaway Postgres, Redis or Mongo.",
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
	})
	srv.AddTool(sandboxTool(), func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		ctx, cancel := context.WithTimeout(ctx, cfg.Limit)
		defer cancel()
		env := callTool(ctx, r, req, cfg.Tick)
		cfg.name(env)
		return toolResult(env), nil
	})
	if !cfg.Listed {
		srv.AddReceivingMiddleware(hideTool)
	}
	return srv
}

// hideTool takes the tool out of listings; calling it still reaches the guard that says why.
func hideTool(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		res, err := next(ctx, method, req)
		if list, ok := res.(*mcp.ListToolsResult); ok && err == nil {
			shown := *list
			shown.Tools = slices.DeleteFunc(slices.Clone(list.Tools), func(t *mcp.Tool) bool { return t.Name == ToolName })
			return &shown, nil
		}
		return res, err
	}
}

// name gives an envelope that no gateway made the names that are always there.
func (cfg MCPConfig) name(env *Envelope) {
	if env.RequestID == "" {
		env.RequestID = uuid.Must(uuid.NewV7()).String()
	}
	if env.CorrelationID == "" {
		env.CorrelationID = cmp.Or(cfg.CorrelationID, env.RequestID)
	}
}

func callTool(ctx context.Context, r Requester, req *mcp.CallToolRequest, tick time.Duration) *Envelope {
	in, err := ParseSandboxRequest(req.Params.Arguments)
	if err != nil {
		return inputEnvelope(err)
	}
	p := newProgressNotifier(ctx, req)
	stop := p.every(tick)
	env, err := r.RequestSandbox(ctx, in, p.step)
	stop()
	if err != nil {
		env = errorEnvelope(err)
	}
	return env
}

// toolResult carries the envelope twice: as structured content, and in words for a model that sees only those.
func toolResult(env *Envelope) *mcp.CallToolResult {
	text, err := json.MarshalIndent(env, "", "  ")
	if err != nil { // an envelope is strings and numbers
		text = []byte(env.Message)
	}
	content := []mcp.Content{&mcp.TextContent{Text: string(text)}}
	if env.Failed() {
		words := env.Message + "\nWhat to do: " + env.Remediate
		if env.Retryable {
			words += fmt.Sprintf("\nTrying again may help, after %d ms.", env.RetryAfterMS)
		}
		content = append([]mcp.Content{&mcp.TextContent{Text: words}}, content...)
	}
	return &mcp.CallToolResult{Content: content, StructuredContent: env, IsError: env.Failed()}
}

// inputEnvelope refuses malformed arguments.
func inputEnvelope(err error) *Envelope {
	code := CodeInvalidInput
	return &Envelope{
		Status: StatusError, Error: &code, Message: err.Error(),
		Remediate: `Call request_sandbox again with services as a list of names and extensions as an object of lists, or with neither.`,
	}
}

// errorEnvelope is the envelope of a refusal, or one for a gateway that was not reached.
func errorEnvelope(err error) *Envelope {
	var e *Error
	if errors.As(err, &e) && e.Envelope.Failed() {
		return &e.Envelope
	}
	code := CodeUnavailable
	env := &Envelope{
		Status: StatusError, Error: &code, Message: err.Error(), Retryable: true, RetryAfterMS: 1000,
		Remediate: "Call request_sandbox again in a moment: what is under way goes on, and the next call joins it.",
	}
	if env.Message == "" {
		env.Message = fmt.Sprintf("%T", err)
	}
	return env
}

// progressNotifier tells the caller's progress token of each step, and again while nothing changes.
type progressNotifier struct {
	notify func(n float64, message string)

	mu      sync.Mutex
	count   float64
	message string
}

func newProgressNotifier(ctx context.Context, req *mcp.CallToolRequest) *progressNotifier {
	p := &progressNotifier{message: "waiting for a worker", notify: func(float64, string) {}}
	token := req.Params.GetProgressToken()
	if token == nil {
		return p
	}
	p.notify = func(n float64, message string) {
		// Who has gone away is not told; the result decides.
		_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: n, Message: message})
	}
	return p
}

// step notifies one step.
func (p *progressNotifier) step(s Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.message = s.Words()
	p.count++
	p.notify(p.count, p.message)
}

// every notifies the last step again at each tick, until the returned function is called; it waits for the last one.
func (p *progressNotifier) every(tick time.Duration) (stop func()) {
	done, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		t := time.NewTicker(tick)
		defer t.Stop()
		for {
			select {
			case <-done:
				return
			case <-t.C:
				p.mu.Lock()
				p.count++
				p.notify(p.count, p.message)
				p.mu.Unlock()
			}
		}
	}()
	return func() { close(done); <-gone }
}

// Words say a step in a few words.
func (s Progress) Words() string {
	var b strings.Builder
	if s.Engine != "" {
		b.WriteString(s.Engine + ": ")
	}
	b.WriteString(s.Stage)
	if s.Position > 0 {
		fmt.Fprintf(&b, ", place %d in the line", s.Position)
	}
	if s.Done > 0 || s.Total > 0 {
		fmt.Fprintf(&b, " %.1f", float64(s.Done)/1e6)
		if s.Total > 0 {
			fmt.Fprintf(&b, " of %.1f", float64(s.Total)/1e6)
		}
		b.WriteString(" MB")
	}
	return b.String()
}
