package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/docker/go-units"
	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/roboco/sandboxd/client"
)

// logsCommand shows what the engines wrote.
func (a *app) logsCommand() *cobra.Command {
	var f client.LogsFilter
	cmd := &cobra.Command{
		Use:   "logs [AGENT]",
		Short: "Show the last lines of your engines' logs (an operator: any agent's)",
		Args:  takes("[AGENT]"),
		RunE: a.action(func(cmd *cobra.Command, c *client.Client, args []string) error {
			if err := within(cmd, "lines", f.Lines, 1, 1000); err != nil {
				return err
			}
			if len(args) == 1 {
				f.Agent = args[0]
			}
			logs, err := c.Logs(cmd.Context(), f)
			if err != nil {
				return err
			}
			if len(logs.Logs) == 0 {
				what := "container"
				if f.Engine != "" {
					what = f.Engine
				}
				a.note("%s has no %s, and so no log", logs.Agent, what)
			}
			return a.print(logs, func(w io.Writer) {
				for _, name := range inOrder(logs.Logs) {
					_, _ = fmt.Fprintf(w, "== %s\n%s\n", name, strings.TrimRight(strings.ReplaceAll(logs.Logs[name], "\t", "    "), "\n"))
				}
			})
		}),
	}
	cmd.Flags().StringVarP(&f.Engine, "engine", "e", "", "one engine's only")
	cmd.Flags().IntVarP(&f.Lines, "lines", "n", 0, "how many lines of each, 1 to 1000; 100 when it is left out")
	return cmd
}

// psCommand lists what lives.
func (a *app) psCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ps",
		Short: "List every sandbox that lives",
		Args:  takes(),
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
		Short: "Ask for the removal of an agent's sandbox; its work goes on, and the next request gets a fresh one",
		Long: `Asks for the removal of the sandboxes of these agents. Their credentials are worth nothing from the answer on; the
containers go in the moments after. The agents' work goes on, and their next request gets a fresh sandbox.`,
		Args: takes("AGENT..."),
		RunE: a.action(func(cmd *cobra.Command, c *client.Client, args []string) error {
			return a.remove(cmd.Context(), c, args)
		}),
	}
}

// removals is what became of each agent whose sandbox was to go.
type removals struct {
	Asked   []string          `json:"asked"`   // asked for removal
	Refused map[string]string `json:"refused"` // why, by agent
}

// remove asks for each removal, whatever became of the others, and says so of each.
func (a *app) remove(ctx context.Context, c *client.Client, agents []string) error {
	out := removals{Asked: []string{}, Refused: map[string]string{}}
	for _, agent := range agents {
		err := c.RemoveSandbox(ctx, agent)
		var refusal *client.Error
		switch {
		case err == nil:
			out.Asked = append(out.Asked, agent)
		case errors.As(err, &refusal):
			out.Refused[agent] = err.Error()
		default:
			if len(out.Asked) > 0 {
				a.note("asked for the removal of: %s", strings.Join(out.Asked, ", "))
			}
			return fmt.Errorf("remove the sandbox of %s: %w", agent, err)
		}
	}
	err := a.print(out, func(w io.Writer) {
		for _, agent := range out.Asked {
			line(w, "asked for removal: "+agent)
		}
		for _, agent := range sortedKeys(out.Refused) {
			line(w, "refused: "+agent+": "+out.Refused[agent])
		}
	})
	if err == nil && len(out.Refused) > 0 {
		return errTold
	}
	return err
}

// requestsCommand reads the history.
func (a *app) requestsCommand() *cobra.Command {
	var f client.HistoryFilter
	cmd := &cobra.Command{
		Use:   "requests",
		Short: "Read the history of requests, newest first",
		Args:  takes(),
		Long: `Reads the history of requests, newest first. GUARD is the rule that refused a request: 0 its role, 1 the master switch,
2 no work under way, 3 the project is not opted in, 4 a service or 5 a service's extensions outside of its set, 6 an
extension that is not allowed, 7 no worker in time, 8 the making failed. MS is the time from question to answer.`,
		RunE: a.action(func(cmd *cobra.Command, c *client.Client, _ []string) error {
			if err := checkHistory(cmd, f); err != nil {
				return err
			}
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
	flags.StringVar(&f.Outcome, "outcome", "", "of this outcome only: ok, refused, failed, stale, late, exhausted")
	flags.StringVar(&f.Before, "before", "", "the page after this request")
	flags.IntVar(&f.Limit, "limit", 0, "how many, 1 to 500; 50 when it is left out")
	return cmd
}

// checkHistory refuses a filter that could match nothing.
func checkHistory(cmd *cobra.Command, f client.HistoryFilter) error {
	if cmd.Flags().Changed("outcome") {
		if err := oneOf("--outcome", f.Outcome, "ok", "refused", "failed", "stale", "late", "exhausted"); err != nil {
			return err
		}
	}
	if f.Before != "" && uuid.Validate(f.Before) != nil {
		return &usageError{fmt.Sprintf("--before is a request's ID, as the last line of a page says, not %q", f.Before)}
	}
	return within(cmd, "limit", f.Limit, 1, 500)
}

// oneLine keeps a table a table.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
