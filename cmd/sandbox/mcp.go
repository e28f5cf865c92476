package main

import (
	"context"
	"errors"
	"fmt"
	"io"

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
			err = srv.Run(cmd.Context(), &mcp.IOTransport{Reader: io.NopCloser(a.in), Writer: unclosed{a.out}})
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

// unclosed keeps the program's output open when a session over it ends.
type unclosed struct{ io.Writer }

// Close does nothing.
func (unclosed) Close() error { return nil }
