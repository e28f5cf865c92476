package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/roboco/sandboxd/client"
)

// agentsCommand looks after identities and their tokens.
func (a *app) agentsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "agents",
		Short: "List and make agents, and give them tokens",
		Args:  takes(),
		RunE: a.action(func(cmd *cobra.Command, c *client.Client, _ []string) error {
			all, err := c.Agents(cmd.Context())
			if err != nil {
				return err
			}
			return a.print(all, func(w io.Writer) {
				line(w, "AGENT", "ROLE", "REVOKED", "SINCE")
				for _, g := range all {
					line(w, g.Slug, g.Role, strconv.FormatBool(g.Revoked), g.CreatedAt.Local().Format(time.DateTime))
				}
			})
		}),
	}
	cmd.AddCommand(a.addAgent(), a.tokenAgent(), a.removeAgent())
	return cmd
}

func (a *app) addAgent() *cobra.Command {
	var role string
	cmd := &cobra.Command{
		Use: "add AGENT", Short: "Make an agent and print its token, which is shown this once", Args: takes("AGENT"),
		RunE: a.action(func(cmd *cobra.Command, c *client.Client, args []string) error {
			g, err := c.CreateAgent(cmd.Context(), args[0], role)
			if err != nil {
				return err
			}
			return a.print(g, func(w io.Writer) { line(w, g.Token) })
		}),
	}
	cmd.Flags().StringVar(&role, "role", "developer", "developer, qa, documenter, choreographer or operator")
	return cmd
}

func (a *app) tokenAgent() *cobra.Command {
	return &cobra.Command{
		Use: "token AGENT", Short: "Print a new token; the old one is worth nothing any more, and a revoked agent is valid again", Args: takes("AGENT"),
		RunE: a.action(func(cmd *cobra.Command, c *client.Client, args []string) error {
			g, err := c.NewToken(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.print(g, func(w io.Writer) { line(w, g.Token) })
		}),
	}
}

func (a *app) removeAgent() *cobra.Command {
	return &cobra.Command{
		Use: "rm AGENT", Short: "Take an agent's token and sandbox away; its name stays taken", Args: takes("AGENT"),
		Long: `Takes an agent's token away, at once, and asks for the removal of its sandbox. Its name stays taken: "sandbox agents token"
gives the agent a new token and makes it valid again.`,
		RunE: a.action(func(cmd *cobra.Command, c *client.Client, args []string) error {
			if err := c.RevokeAgent(cmd.Context(), args[0]); err != nil {
				return err
			}
			return a.print(map[string]string{"revoked": args[0]}, func(w io.Writer) { line(w, "revoked: "+args[0]+"; its sandbox, if it has one, is being removed") })
		}),
	}
}

// workCommand publishes what a choreographer knows: who works on what.
func (a *app) workCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "work",
		Short: "Tell that an agent's work begins or ends (a choreographer)",
		Args:  takes(),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.startWork(), a.endWork())
	return cmd
}

func (a *app) startWork() *cobra.Command {
	var task, project, owner, id string
	cmd := &cobra.Command{
		Use: "start AGENT", Short: "The agent begins to work on a task of a project", Args: takes("AGENT"),
		RunE: a.action(func(cmd *cobra.Command, c *client.Client, args []string) error {
			data := map[string]string{"task_id": task, "project": project, "status": "in_progress"}
			if owner != "" {
				data["owner"] = owner
			}
			return a.publish(cmd, c, "work.started", args[0], id, data)
		}),
	}
	cmd.Flags().StringVar(&task, "task", "", "the task's ID")
	cmd.Flags().StringVar(&project, "project", "", "the project's slug")
	cmd.Flags().StringVar(&owner, "owner", "", "container or lease: where the agent lives; left out, the worker looks")
	cmd.Flags().StringVar(&id, "id", "", "the event's ID; the same one again changes nothing")
	_ = cmd.MarkFlagRequired("task")
	_ = cmd.MarkFlagRequired("project")
	return cmd
}

func (a *app) endWork() *cobra.Command {
	var task, id string
	cmd := &cobra.Command{
		Use: "end AGENT", Short: "The agent's work on a task ends", Args: takes("AGENT"),
		RunE: a.action(func(cmd *cobra.Command, c *client.Client, args []string) error {
			return a.publish(cmd, c, "work.ended", args[0], id, map[string]string{"verb": "unclaim", "task_id": task})
		}),
	}
	cmd.Flags().StringVar(&task, "task", "", "the task's ID")
	cmd.Flags().StringVar(&id, "id", "", "the event's ID; the same one again changes nothing")
	_ = cmd.MarkFlagRequired("task")
	return cmd
}

// publish sends one event under a new ID, unless one is given.
func (a *app) publish(cmd *cobra.Command, c *client.Client, kind, agent, id string, data map[string]string) error {
	if id == "" {
		v7, err := uuid.NewV7()
		if err != nil {
			return fmt.Errorf("make an event ID: %w", err)
		}
		id = v7.String()
	}
	body, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("write the event: %w", err)
	}
	p, err := c.PublishEvent(cmd.Context(), client.Event{ID: id, Type: kind, Source: "sandbox-cli", Subject: agent, Data: body})
	if err != nil {
		return err
	}
	if p.Warning != "" {
		a.note("%s", p.Warning)
	}
	return a.print(p, func(w io.Writer) {
		switch {
		case p.Known:
			line(w, "this event was published before; nothing changed")
		case p.Moot:
			line(w, "published; it changed nothing")
		default:
			line(w, "published")
		}
	})
}
