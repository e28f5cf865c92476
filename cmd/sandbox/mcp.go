package main

import (
	"github.com/spf13/cobra"

	"github.com/roboco/sandboxd/client"
)

// mcpCommand serves the tool to an agent's program, over its standard input and output.
func (a *app) mcpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "mcp",
		Short: "Serve request_sandbox as an MCP tool on standard input and output",
		Args:  cobra.NoArgs,
		RunE: a.action(func(cmd *cobra.Command, c *client.Client, _ []string) error {
			panic("unbuilt")
		}),
	}
}
