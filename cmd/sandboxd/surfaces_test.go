package main

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/client"
)

// bearer sends a token with every call.
type bearer struct {
	token string
	next  http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

// refusals gives the refusal of one request over HTTP and over MCP.
func (in *installation) refusals(token string, r client.SandboxRequest) (overHTTP, overMCP client.Envelope) {
	in.t.Helper()
	ctx := in.t.Context()
	_, err := in.client(token).RequestSandbox(ctx, r, nil)
	var refused *client.Error
	require.ErrorAs(in.t, err, &refused)
	require.Equal(in.t, http.StatusOK, refused.HTTPStatus, "a guard's refusal is an answer")

	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(ctx, &mcp.StreamableClientTransport{
		Endpoint: in.url + "/mcp", HTTPClient: &http.Client{Transport: bearer{token, transport}}, MaxRetries: -1,
	}, nil)
	require.NoError(in.t, err)
	defer func() { _ = session.Close() }()
	res, err := session.CallTool(ctx, &mcp.CallToolParams{Name: client.ToolName, Arguments: r})
	require.NoError(in.t, err, "a refusal is a result, never an error of the protocol")
	require.True(in.t, res.IsError)
	raw, err := json.Marshal(res.StructuredContent)
	require.NoError(in.t, err)
	require.NoError(in.t, json.Unmarshal(raw, &overMCP))
	return refused.Envelope, overMCP
}

// Every guard, in order, on a running system: the same words over HTTP and over MCP.
func TestGuardsOnEverySurface(t *testing.T) {
	t.Parallel()
	in := install(t)
	in.gateway()
	in.worker()
	op := in.client(in.operator)
	slug := "g" + in.cell[:12]
	writer, err := op.CreateAgent(t.Context(), "w"+uuid.NewString()[:8], "documenter")
	require.NoError(t, err)
	dev, err := op.CreateAgent(t.Context(), slug, "developer")
	require.NoError(t, err)
	project := func(services []string) {
		_, err := op.PutProject(t.Context(), client.Project{Slug: "p-" + slug, Name: "p", Services: services})
		require.NoError(t, err)
	}
	off, on := false, true
	flag := func(v *bool) {
		_, err := op.SetFlag(t.Context(), v)
		require.NoError(t, err)
	}
	all := client.SandboxRequest{}
	for _, step := range []struct {
		name      string
		prepare   func()
		token     string
		ask       client.SandboxRequest
		message   string
		remediate []string
	}{
		{"0: the role", func() { flag(&off) }, writer.Token, all, "documenter", []string{"developer", "qa"}},
		{"1: the switch", func() {}, dev.Token, all, "", []string{"ROBOCO_SANDBOX_DB_ENABLED"}},
		{"2: no engagement", func() { flag(&on) }, dev.Token, all, "", []string{"give_me_work"}},
		{"3: not opted in", func() { project(nil); in.start(slug, "T-1") }, dev.Token, all, "", []string{"sandbox_services"}},
		{"3: an empty set", func() { project([]string{}) }, dev.Token, all, "", []string{"sandbox_services"}},
		{"4: outside the set", func() { project([]string{"postgres", "redis"}) }, dev.Token, client.SandboxRequest{Services: []string{"mongo"}}, "mongo", []string{"postgres, redis"}},
		{"5: extensions outside the set", func() {}, dev.Token, client.SandboxRequest{Extensions: map[string][]string{"mongo": {"x"}}}, "mongo", []string{"postgres, redis", "bloom, json, search"}},
		{"6: outside the allowlist", func() {}, dev.Token, client.SandboxRequest{Extensions: map[string][]string{"postgres": {"adminpack"}}}, "adminpack", []string{"citext, pg_trgm, postgis, uuid-ossp, vector"}},
	} {
		step.prepare()
		a, b := in.refusals(step.token, step.ask)
		require.Contains(t, a.Message, step.message, step.name)
		for _, words := range step.remediate {
			require.Contains(t, a.Remediate, words, step.name)
		}
		require.False(t, a.Retryable, step.name)
		require.NotEqual(t, a.RequestID, b.RequestID, step.name)
		a.RequestID, a.CorrelationID, b.RequestID, b.CorrelationID = "", "", "", ""
		wire, err := json.Marshal(a)
		require.NoError(t, err)
		other, err := json.Marshal(b)
		require.NoError(t, err)
		require.JSONEq(t, string(wire), string(other), "%s: one answer on every surface", step.name)
	}
	require.Empty(t, in.containers(), "a refusal makes nothing")
	in.quiet()
}
