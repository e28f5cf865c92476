package verbs_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/events"
)

// bearer sends a token with every call.
type bearer struct {
	token string
	next  *http.Transport
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

// mcp connects the SDK's own client as an agent; progress is told to each.
func (s *scene) mcp(slug string, each func(*mcp.ProgressNotificationParams)) *mcp.ClientSession {
	s.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			if each != nil {
				each(r.Params)
			}
		},
	})
	transport := &http.Transport{}
	session, err := c.Connect(s.Context(), &mcp.StreamableClientTransport{
		Endpoint: s.url + "/mcp", HTTPClient: &http.Client{Transport: bearer{slug + "-token", transport}}, MaxRetries: -1,
	}, nil)
	require.NoError(s, err)
	s.Cleanup(func() {
		_ = session.Close()
		transport.CloseIdleConnections()
	})
	return session
}

// callTool calls the tool and checks its result against the tool's own schema.
func (s *scene) callTool(session *mcp.ClientSession, args any, schema *jsonschema.Resolved) (*mcp.CallToolResult, client.Envelope) {
	s.Helper()
	params := &mcp.CallToolParams{Name: client.ToolName, Arguments: args}
	params.SetProgressToken("p1")
	res, err := session.CallTool(s.Context(), params)
	require.NoError(s, err, "a refusal is a result, never an error of the protocol")
	raw := encode(s, res.StructuredContent)
	s.complete(string(raw))
	var env client.Envelope
	require.NoError(s, json.Unmarshal(raw, &env))
	require.Equal(s, env.Failed(), res.IsError)
	if schema != nil {
		require.NoError(s, schema.Validate(res.StructuredContent))
	}
	return res, env
}

// schemaOf resolves a schema as a client sees it.
func (s *scene) schemaOf(v any) *jsonschema.Resolved {
	s.Helper()
	var schema jsonschema.Schema
	require.NoError(s, json.Unmarshal(encode(s, v), &schema))
	resolved, err := schema.Resolve(nil)
	require.NoError(s, err)
	return resolved
}

func (s *scene) tools(session *mcp.ClientSession) []*mcp.Tool {
	s.Helper()
	list, err := session.ListTools(s.Context(), nil)
	require.NoError(s, err)
	return list.Tools
}

func mcpTests() []test {
	return []test{
		{"the tool: listed for the roles that carry it, with exact schemas, and it works", func(s *scene) {
			s.work()
			s.engage(dev, task)
			session := s.mcp(dev, nil)
			tools := s.tools(session)
			require.Len(s, tools, 1)
			require.Equal(s, "request_sandbox", tools[0].Name)
			in, out := s.schemaOf(tools[0].InputSchema), s.schemaOf(tools[0].OutputSchema)
			for args, ok := range map[string]bool{
				`{}`: true, `{"services":["redis"]}`: true, `{"services":null,"extensions":{"postgres":["vector"]}}`: true,
				`{"services":[]}`: false, `{"services":"redis"}`: false, `{"service":[]}`: false, `{"extensions":["x"]}`: false,
			} {
				var v any
				require.NoError(s, json.Unmarshal([]byte(args), &v))
				require.Equal(s, ok, in.Validate(v) == nil, args)
			}
			_, env := s.callTool(session, map[string]any{"services": []string{"redis"}, "extensions": map[string]any{"redis": []string{"json"}}}, out)
			require.Len(s, env.Evidence, 1)
			require.Equal(s, "created", env.Evidence["redis"].Outcome)
			require.Equal(s, []string{"json"}, env.Evidence["redis"].AvailableModules)
			_, env = s.callTool(session, nil, out)
			require.Len(s, env.Evidence, 3)
			require.Equal(s, "reused", env.Evidence["redis"].Outcome)
			require.NotEmpty(s, env.RequestID)
			require.Equal(s, 1, s.worker.provisions(dev))
		}},
		{"who does not carry it does not see it, and is told so when calling it", func(s *scene) {
			s.work()
			for _, slug := range []string{doc, choreo, ops} {
				session := s.mcp(slug, nil)
				require.Empty(s, s.tools(session))
				res, env := s.callTool(session, nil, nil)
				require.Equal(s, client.CodeInvalidState, *env.Error)
				require.Contains(s, env.Remediate, "developer, qa")
				text, ok := res.Content[0].(*mcp.TextContent)
				require.True(s, ok)
				require.Contains(s, text.Text, env.Message)
				require.Contains(s, text.Text, env.Remediate)
			}
			require.Len(s, s.tools(s.mcp(qa, nil)), 1)
		}},
		{"refusals, failures and malformed arguments are results", func(s *scene) {
			s.work()
			session := s.mcp(dev, nil)
			out := s.schemaOf(s.tools(session)[0].OutputSchema)
			_, env := s.callTool(session, nil, out)
			require.Contains(s, env.Remediate, "give_me_work")
			s.engage(dev, task)
			for _, args := range []any{
				map[string]any{"services": []string{}},
				map[string]any{"services": "redis"},
				map[string]any{"agent": other},
				map[string]any{"extensions": []string{"vector"}},
			} {
				_, env = s.callTool(session, args, out)
				require.Equal(s, client.CodeInvalidInput, *env.Error)
				require.NotEmpty(s, env.Remediate)
			}
			_, env = s.callTool(session, map[string]any{"services": []string{"nosuch"}}, out)
			require.Equal(s, client.CodeInvalidState, *env.Error)
			require.Contains(s, env.Message, "nosuch")
		}},
		{"progress comes from the reply stream, and again while nothing changes", func(s *scene) {
			s.worker.hold = make(chan struct{})
			s.work()
			s.engage(dev, task)
			var mu sync.Mutex
			var messages []string
			var last float64
			var once sync.Once
			session := s.mcp(dev, func(p *mcp.ProgressNotificationParams) {
				mu.Lock()
				defer mu.Unlock()
				if p.Progress <= last || p.ProgressToken != "p1" {
					s.Errorf("progress %v after %v for %v", p.Progress, last, p.ProgressToken)
				}
				last = p.Progress
				messages = append(messages, p.Message)
				if n := count(messages, "accepted"); n >= 3 { // once by the stream, then by the clock
					once.Do(func() { close(s.worker.hold) })
				}
			})
			_, env := s.callTool(session, nil, nil)
			require.Len(s, env.Evidence, 3)
			s.eventually("the steps were told", func() bool {
				mu.Lock()
				defer mu.Unlock()
				return slices.Contains(messages, "postgres: creating")
			})
		}},
		{"identity comes from each call's own token, whatever session it names", func(s *scene) {
			s.work()
			s.engage(dev, task)
			s.engage(other, task)
			_, env := s.callTool(s.mcp(dev, nil), nil, nil)
			require.Equal(s, "roboco-sandbox-pg-"+dev, env.Evidence["postgres"].Host)
			session := s.mcp(other, nil)
			_, env = s.callTool(session, nil, nil)
			require.Equal(s, "roboco-sandbox-pg-"+other, env.Evidence["postgres"].Host)
			call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"request_sandbox","arguments":{}}}`
			a := s.call(qa, "POST", "/mcp", call, "Accept: application/json, text/event-stream", "Mcp-Session-Id: "+session.ID(), "Content-Type: text/plain")
			require.Equal(s, http.StatusOK, a.status, a.body)
			require.Contains(s, a.body, "give_me_work", "the one who has no work is told so")
			require.NotContains(s, a.body, s.worker.password)
		}},
		{"who stops waiting cancels nothing", func(s *scene) {
			s.worker.hold = make(chan struct{})
			s.work()
			s.engage(dev, task)
			seen := make(chan struct{}, 100)
			session := s.mcp(dev, func(p *mcp.ProgressNotificationParams) {
				if p.Message == "accepted" {
					seen <- struct{}{}
				}
			})
			ctx, cancel := context.WithCancel(s.Context())
			ended := make(chan error, 1)
			go func() {
				params := &mcp.CallToolParams{Name: client.ToolName}
				params.SetProgressToken("p1")
				_, err := session.CallTool(ctx, params)
				ended <- err
			}()
			receive(s, seen)
			cancel()
			require.Error(s, receive(s, ended))
			close(s.worker.hold)
			_, env := s.callTool(s.mcp(dev, nil), nil, nil)
			require.Len(s, env.Evidence, 3)
			require.Equal(s, 1, s.worker.provisions(dev))
		}},
		{"the same tool over any transport, with a client behind it", func(s *scene) {
			s.work()
			s.engage(dev, task)
			srv := client.MCPServer(s.as(dev), client.MCPConfig{Listed: true})
			a, b := mcp.NewInMemoryTransports()
			served, err := srv.Connect(s.Context(), a, nil)
			require.NoError(s, err)
			session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(s.Context(), b, nil)
			require.NoError(s, err)
			out := s.schemaOf(s.tools(session)[0].OutputSchema)
			_, env := s.callTool(session, nil, out)
			require.Len(s, env.Evidence, 3)
			_, env = s.callTool(session, map[string]any{"services": []string{"nosuch"}}, out)
			require.Contains(s, env.Message, "nosuch")
			require.NoError(s, session.Close())
			require.NoError(s, served.Wait())
		}},
		{"what the transport refuses is an error of JSON-RPC", func(s *scene) {
			for _, x := range []struct {
				body, accept string
				code         int
			}{
				{"nonsense", "application/json, text/event-stream", -32700},
				{"", "application/json, text/event-stream", -32700},
				{"{}", "application/json, text/event-stream", -32600},
				{`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "text/html", -32600},
			} {
				a := s.call(dev, "POST", "/mcp", x.body, "Accept: "+x.accept)
				require.Equal(s, http.StatusBadRequest, a.status, a.body)
				var e struct {
					JSONRPC string `json:"jsonrpc"`
					Error   struct {
						Code    int    `json:"code"`
						Message string `json:"message"`
					} `json:"error"`
				}
				require.NoError(s, json.Unmarshal([]byte(a.body), &e), a.body)
				require.Equal(s, "2.0", e.JSONRPC)
				require.Equal(s, x.code, e.Error.Code, a.body)
				require.NotEmpty(s, e.Error.Message)
				require.Equal(s, "application/json", a.header.Get("Content-Type"))
			}
		}},
		{"guard 7 is a result too", func(s *scene) {
			s = s.hasty()
			s.engage(dev, task)
			res, env := s.callTool(s.mcp(dev, nil), nil, nil)
			require.True(s, env.Retryable)
			require.True(s, res.IsError)
			known, err := s.bus.Agent(s.Context(), dev)
			require.NoError(s, err)
			require.Equal(s, events.AgentState{Known: true, Task: task, Project: proj}, known)
		}},
	}
}
