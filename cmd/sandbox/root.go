package main

import (
	"runtime/debug"

	"github.com/spf13/cobra"
)

const longHelp = `sandbox asks a sandboxd gateway for throwaway databases, and looks after them.

An agent asks with "sandbox request" and reads its credentials with "sandbox env"; "sandbox done" ends the work and
with it the databases. Operators and choreographers have the other commands.

Environment:
  ROBOCO_SANDBOX_URL    the gateway (default http://127.0.0.1:8420)
  ROBOCO_SANDBOX_TOKEN  the caller's bearer token: who calls, and in which role
  ROBOCO_SANDBOX_CA     the file of the authority of an https:// gateway's certificate, trusted beside the system's

Exit codes: 0 done, 1 refused, 2 used wrongly, 3 the gateway cannot be reached.`

// Groups of commands in the help.
const (
	groupAgent    = "agent"
	groupOperator = "operator"
)

// version is this program's, as the build recorded it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "dev"
	}
	return info.Main.Version
}

// root is the whole command tree.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "sandbox",
		Short:         "Throwaway databases for coding agents",
		Long:          longHelp,
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          takes(),
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print JSON, refusals included")
	root.AddGroup(&cobra.Group{ID: groupAgent, Title: "For agents:"}, &cobra.Group{ID: groupOperator, Title: "For operators and choreographers:"})
	add := func(group string, cmds ...*cobra.Command) {
		for _, c := range cmds {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add(groupAgent, a.requestCommand(), a.statusCommand(), a.envCommand(), a.doneCommand(), a.logsCommand(), a.mcpCommand(),
		a.enginesCommand(), a.verbsCommand())
	add(groupOperator, a.projectsCommand(), a.agentsCommand(), a.workCommand(), a.psCommand(), a.rmCommand(),
		a.requestsCommand(), a.deadCommand(), a.switchCommand(), a.healthCommand())
	return root
}
