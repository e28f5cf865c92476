package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/roboco/sandboxd/client"
)

// mcpCommand serves the tool to an agent's program, over its standard input and output.
func (a *app) mcpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "mcp",
		Short: "Serve request_sandbox as an MCP tool on standard input and output",
		Long: `Serves the tool request_sandbox to a program that speaks the Model Context Protocol on this program's standard input and
output. The gateway serves the same tool over HTTP at /mcp.`,
		Args: takes(),
		RunE: a.action(func(cmd *cobra.Command, c *client.Client, _ []string) error {
			listed, err := carriesTool(cmd.Context(), c)
			if err != nil {
				return err
			}
			srv := client.MCPServer(c, client.MCPConfig{Listed: listed})
			out := &messages{w: a.out}
			err = srv.Run(cmd.Context(), &mcp.IOTransport{Reader: io.NopCloser(newSieve(a.in, out)), Writer: out})
			if err != nil && cmd.Context().Err() == nil && !errors.Is(err, io.EOF) {
				return fmt.Errorf("serve MCP: %w", err)
			}
			return nil
		}),
	}
}

// carriesTool says whether the caller's role carries the tool. A gateway that cannot be reached yet is no reason to
// hide it: a call will say so. A token that the gateway refuses is.
func carriesTool(ctx context.Context, c *client.Client) (bool, error) {
	m, err := c.Verbs(ctx)
	var refusal *client.Error
	switch {
	case err == nil:
		return m.Carries(client.ToolName), nil
	case errors.As(err, &refusal) && !refusal.Envelope.Retryable:
		return false, err
	default:
		return true, nil
	}
}

// messages writes one message at a time, whoever it comes from, and keeps the program's output open when a session ends.
type messages struct {
	mu sync.Mutex
	w  io.Writer
}

// Write writes one message.
func (m *messages) Write(b []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.w.Write(b) //nolint:wrapcheck // an io.Writer gives its own errors
}

// Close does nothing.
func (*messages) Close() error { return nil }

// sieve lets through the lines that are messages of JSON-RPC, and answers the others with an error, so that one bad line
// does not end the session.
type sieve struct {
	in   *bufio.Reader
	out  io.Writer
	rest []byte // of a line that is let through
}

func newSieve(in io.Reader, out io.Writer) *sieve { return &sieve{in: bufio.NewReader(in), out: out} }

// Read gives the next piece of a message.
func (s *sieve) Read(p []byte) (int, error) {
	for len(s.rest) == 0 {
		line, err := s.in.ReadBytes('\n')
		if text := bytes.TrimSpace(line); len(text) > 0 {
			if code, problem := judge(text); code != 0 {
				if err := s.refuse(code, problem); err != nil {
					return 0, err
				}
			} else {
				s.rest = append(text, '\n')
			}
		}
		if err != nil && len(s.rest) == 0 {
			return 0, err //nolint:wrapcheck // an io.Reader gives its own errors
		}
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// judge says what is wrong with a line, by the codes of JSON-RPC; 0 for nothing.
func judge(line []byte) (code int, problem string) {
	if !json.Valid(line) {
		return jsonrpc.CodeParseError, "the line is not JSON"
	}
	batch := []json.RawMessage{line}
	if line[0] == '[' && (json.Unmarshal(line, &batch) != nil || len(batch) == 0) {
		return jsonrpc.CodeInvalidRequest, "the line holds no message"
	}
	for _, m := range batch {
		if _, err := jsonrpc.DecodeMessage(m); err != nil {
			return jsonrpc.CodeInvalidRequest, "the line is not a message of JSON-RPC 2.0"
		}
	}
	return 0, ""
}

// refuse answers a line that no message can be read from.
func (s *sieve) refuse(code int, problem string) error {
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": nil, "error": map[string]any{"code": code, "message": problem}})
	if err == nil {
		_, err = s.out.Write(append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("answer a line that is no message: %w", err)
	}
	return nil
}
