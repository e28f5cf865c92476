package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/client"
)

// connect starts `sandbox mcp` on pipes and connects the SDK's own client to it.
func (g *gateway) connect(t *testing.T) *mcp.ClientSession {
	t.Helper()
	fromClient, toServer := io.Pipe()
	fromServer, toClient := io.Pipe()
	var errs bytes.Buffer
	code := make(chan int, 1)
	go func() {
		a := &app{in: fromClient, out: toClient, err: &errs, url: g.URL, token: "t"}
		code <- a.run(t.Context(), []string{"mcp"})
	}()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).
		Connect(t.Context(), &mcp.IOTransport{Reader: fromServer, Writer: toServer}, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, session.Close())
		require.NoError(t, toServer.Close())
		require.Equal(t, exitOK, <-code, "the program ends with its input")
	})
	return session
}

func manifest(role string) client.Manifest {
	return client.Manifest{Agent: "a", Role: role, Verbs: []client.VerbDescription{{Name: client.ToolName, Roles: []string{"developer", "qa"}}}}
}

func TestMCPGivesASandbox(t *testing.T) {
	t.Parallel()
	g := newGateway(t, map[string]any{
		"GET /api/v1/verbs":               manifest("developer"),
		"POST /api/v1/do/request_sandbox": client.Envelope{Status: client.StatusInProgress, Evidence: evidence()},
	})
	session := g.connect(t)
	tools, err := session.ListTools(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, tools.Tools, 1)
	res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: client.ToolName, Arguments: map[string]any{"services": []string{"postgres"}}})
	require.NoError(t, err)
	require.False(t, res.IsError)
	require.Contains(t, res.StructuredContent, "evidence")
}

func TestMCPRefusalIsAToolResult(t *testing.T) {
	t.Parallel()
	g := newGateway(t, map[string]any{
		"GET /api/v1/verbs":               manifest("documenter"),
		"POST /api/v1/do/request_sandbox": refuse(http.StatusOK, "not for documenters", "developer or qa"),
	})
	session := g.connect(t)
	tools, err := session.ListTools(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, tools.Tools, "shown only to roles that carry it")
	res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: client.ToolName})
	require.NoError(t, err)
	require.True(t, res.IsError)
}

func TestMCPOutlivesBadLines(t *testing.T) {
	t.Parallel()
	g := newGateway(t, map[string]any{"GET /api/v1/verbs": manifest("developer")})
	var errs bytes.Buffer
	fromClient, toServer := io.Pipe()
	fromServer, toClient := io.Pipe()
	code := make(chan int, 1)
	go func() {
		a := &app{in: fromClient, out: toClient, err: &errs, url: g.URL, token: "t"}
		code <- a.run(t.Context(), []string{"mcp"})
	}()
	answers := bufio.NewReader(fromServer)
	for _, c := range []struct {
		line string
		code int
	}{
		{"nonsense", -32700},
		{`{"a": 1}`, -32600},
		{"[]", -32600},
		{`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`, 0},
	} {
		_, err := io.WriteString(toServer, "\n"+c.line+"\n")
		require.NoError(t, err)
		answer, err := answers.ReadBytes('\n')
		require.NoError(t, err)
		var m struct {
			Result json.RawMessage `json:"result"`
			Error  struct {
				Code int `json:"code"`
			} `json:"error"`
		}
		require.NoError(t, json.Unmarshal(answer, &m), "%s", answer)
		require.Equal(t, c.code, m.Error.Code, c.line)
		require.Equal(t, c.code == 0, m.Result != nil, c.line)
	}
	require.NoError(t, toServer.Close())
	require.Equal(t, exitOK, <-code, errs.String())
}

func TestMCPWithABadTokenEndsAtOnce(t *testing.T) {
	t.Parallel()
	g := newGateway(t, map[string]any{"GET /api/v1/verbs": refuse(http.StatusUnauthorized, "unknown token", "get a new one")})
	code, out, errs := g.run(t, "mcp")
	require.Equal(t, exitRefused, code)
	require.Empty(t, out)
	require.Contains(t, errs, "unknown token")
}
