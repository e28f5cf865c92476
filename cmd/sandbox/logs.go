package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/docker/go-units"
	"github.com/spf13/cobra"

	"github.com/roboco/sandboxd/client"
)

// logsCommand shows what the engines wrote.
func (a *app) logsCommand() *cobra.Command {
	var f client.LogsFilter
	cmd := &cobra.Command{
		Use:   "logs [AGENT]",
		Short: "Show the last lines of your engines' logs (an operator: any agent's)",
		Args:  cobra.MaximumNArgs(1),
		RunE: a.action(func(cmd *cobra.Command, c *client.Client, args []string) error {
			if len(args) == 1 {
				f.Agent = args[0]
			}
			logs, err := c.Logs(cmd.Context(), f)
			if err != nil {
				return err
			}
			return a.print(logs, func(w io.Writer) {
				for _, name := range sortedKeys(logs.Logs) {
					_, _ = fmt.Fprintf(w, "== %s\n%s\n", name, strings.TrimRight(strings.ReplaceAll(logs.Logs[name], "\t", "    "), "\n"))
				}
			})
		}),
	}
	cmd.Flags().StringVarP(&f.Engine, "engine", "e", "", "one engine's only")
	cmd.Flags().IntVarP(&f.Lines, "lines", "n", 0, "how many lines of each; 0 is the gateway's own number")
	return cmd
}

// psCommand lists what lives.
func (a *app) psCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ps",
		Short: "List every sandbox that lives",
		Args:  cobra.NoArgs,
		RunE: a.action(func(cmd *cobra.Command, c *client.Client, _ []string) error {
			all, err := c.Sandboxes(cmd.Context())
			if err != nil {
				return err
			}
			return a.print(all, func(w io.Writer) {
				line(w, "AGENT", "PROJECT", "TASK", "OWNER", "ENGINE", "CONTAINER", "AGE", "MEMORY", "EXPIRES")
				for _, s := range all {
					for _, e := range s.Engines {
						line(w, s.Agent, dash(s.Project), dash(s.TaskID), shortOwner(s.Owner), e.Engine, e.Container,
							units.HumanDuration(time.Duration(e.AgeSeconds)*time.Second), units.BytesSize(float64(e.MemoryBytes)),
							s.ExpiresAt.Local().Format(time.DateTime))
					}
				}
			})
		}),
	}
}

// shortOwner cuts a container's ID as the docker command does.
func shortOwner(owner string) string {
	id, _, isContainer := strings.Cut(owner, "@")
	if isContainer && len(id) > 12 {
		return id[:12]
	}
	return dash(owner)
}

// rmCommand removes an agent's sandbox.
func (a *app) rmCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rm AGENT...",
		Short: "Remove an agent's sandbox; its work goes on, and the next request gets a fresh one",
		Args:  cobra.MinimumNArgs(1),
		RunE: a.action(func(cmd *cobra.Command, c *client.Client, args []string) error {
			for _, agent := range args {
				if err := c.RemoveSandbox(cmd.Context(), agent); err != nil {
					return fmt.Errorf("remove the sandbox of %s: %w", agent, err)
				}
			}
			return a.print(map[string][]string{"removed": args}, func(w io.Writer) {
				for _, agent := range args {
					line(w, "removed: "+agent)
				}
			})
		}),
	}
}

// requestsCommand reads the history.
func (a *app) requestsCommand() *cobra.Command {
	var f client.HistoryFilter
	cmd := &cobra.Command{
		Use:   "requests",
		Short: "Read the history of requests, newest first",
		Args:  cobra.NoArgs,
		RunE: a.action(func(cmd *cobra.Command, c *client.Client, _ []string) error {
			page, err := c.Requests(cmd.Context(), f)
			if err != nil {
				return err
			}
			return a.print(page, func(w io.Writer) {
				line(w, "ASKED", "AGENT", "PROJECT", "TASK", "SERVICES", "OUTCOME", "GUARD", "MS", "MESSAGE")
				for _, r := range page.Requests {
					guard := "-"
					if r.Guard != nil {
						guard = strconv.Itoa(*r.Guard)
					}
					line(w, r.AskedAt.Local().Format(time.DateTime), r.Agent, dash(r.Project), dash(r.TaskID), list(r.Services, "all"),
						r.Outcome, guard, strconv.FormatInt(r.PhasesMS["total"], 10), dash(oneLine(r.Message)))
				}
				if page.NextBefore != "" {
					line(w, "more: --before "+page.NextBefore)
				}
			})
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.Agent, "agent", "", "of this agent only")
	flags.StringVar(&f.Project, "project", "", "of this project only")
	flags.StringVar(&f.TaskID, "task", "", "of this task only")
	flags.StringVar(&f.Outcome, "outcome", "", "of this outcome only: ok, refused, failed, stale, late")
	flags.StringVar(&f.Before, "before", "", "the page after this request")
	flags.IntVar(&f.Limit, "limit", 0, "how many; 0 is 50, the most are 500")
	return cmd
}

// oneLine keeps a table a table.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
