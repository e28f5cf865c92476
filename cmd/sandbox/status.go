package main

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/roboco/sandboxd/client"
)

// statusCommand shows the caller's own sandbox.
func (a *app) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show your databases",
		Long:  "Shows your databases as they stand, without asking for any. It also lets them live on: their time begins anew.",
		Args:  takes(),
		RunE: a.action(func(cmd *cobra.Command, c *client.Client, _ []string) error {
			s, err := ownSandbox(cmd, c)
			if err != nil {
				return err
			}
			return a.print(s, func(w io.Writer) {
				line(w, "agent:", s.Agent)
				line(w, "task:", dash(s.TaskID))
				line(w, "project:", dash(s.Project))
				line(w, "expires:", s.ExpiresAt.Local().Format(time.DateTime))
				line(w)
				writeEvidence(w, s.Engines, false)
			})
		}),
	}
}

// ownSandbox is the caller's sandbox; its absence says what to do about it.
func ownSandbox(cmd *cobra.Command, c *client.Client) (*client.Sandbox, error) {
	s, err := c.Sandbox(cmd.Context())
	if client.IsStatus(err, http.StatusNotFound) {
		return nil, fmt.Errorf("%w; ask for one with: sandbox request", err)
	}
	return s, err
}

// envCommand prints what a shell can source.
func (a *app) envCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "env",
		Short:   "Print your credentials as lines that a shell can source",
		Example: `  eval "$(sandbox env)"`,
		Args:    takes(),
		RunE: a.action(func(cmd *cobra.Command, c *client.Client, _ []string) error {
			s, err := ownSandbox(cmd, c)
			if err != nil {
				return err
			}
			all := map[string]string{}
			for _, e := range s.Engines {
				maps.Copy(all, e.Env)
			}
			lines, err := exports(all)
			if err != nil {
				return err
			}
			return a.print(all, func(w io.Writer) { _, _ = io.WriteString(w, lines) })
		}),
	}
}

// exports writes one export line a name, sorted, quoted so that a shell takes each value as it stands.
func exports(env map[string]string) (string, error) {
	name := regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	var b strings.Builder
	for _, k := range sortedKeys(env) {
		if !name.MatchString(k) || strings.ContainsRune(env[k], 0) {
			return "", fmt.Errorf("the gateway gave a variable that no shell can hold: %q", k)
		}
		fmt.Fprintf(&b, "export %s='%s'\n", k, strings.ReplaceAll(env[k], "'", `'\''`))
	}
	return b.String(), nil
}

// doneCommand ends the work.
func (a *app) doneCommand() *cobra.Command {
	var task string
	cmd := &cobra.Command{
		Use:   "done [VERB]",
		Short: "End your work; your databases go with it",
		Long: `Ends your work with one of the work-ending verbs: i_am_done (when none is named), unclaim, i_am_idle, pass_review,
fail_review, i_documented. Your databases are removed at once, with all that is in them.`,
		Args: takes("[VERB]"),
		RunE: a.action(func(cmd *cobra.Command, c *client.Client, args []string) error {
			verb := "i_am_done"
			if len(args) == 1 {
				verb = args[0]
			}
			if err := oneOf("VERB", verb, "i_am_done", "unclaim", "i_am_idle", "pass_review", "fail_review", "i_documented"); err != nil {
				return err
			}
			env, err := c.EndWork(cmd.Context(), verb, task)
			if err != nil {
				return err
			}
			return a.print(env, func(w io.Writer) {
				if env.Warning != "" {
					line(w, env.Warning)
					return
				}
				line(w, "the work has ended; the databases are being removed")
			})
		}),
	}
	cmd.Flags().StringVar(&task, "task", "", "the task that ends; your engagement's when none is named")
	return cmd
}
