package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roboco/sandboxd/client"
)

// enginesCommand shows what can be asked for.
func (a *app) enginesCommand() *cobra.Command {
	return &cobra.Command{
		Use: "engines", Short: "Show the services there are, and the features each may have", Args: takes(),
		RunE: a.action(func(cmd *cobra.Command, c *client.Client, _ []string) error {
			all, err := c.Engines(cmd.Context())
			if err != nil {
				return err
			}
			return a.print(all, func(w io.Writer) {
				line(w, "SERVICE", "PORT", "IMAGE", "FEATURE IMAGE", "FEATURES")
				for _, e := range all {
					line(w, e.Name, strconv.Itoa(e.Port), e.Image, dash(e.FeatureImage), dash(strings.Join(e.Features, ",")))
				}
			})
		}),
	}
}

// verbsCommand shows who the caller is and what it may call.
func (a *app) verbsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "verbs", Short: "Show who you are, and which verbs which roles carry", Args: takes(),
		RunE: a.action(func(cmd *cobra.Command, c *client.Client, _ []string) error {
			m, err := c.Verbs(cmd.Context())
			if err != nil {
				return err
			}
			return a.print(m, func(w io.Writer) {
				line(w, "you are "+dash(m.Agent)+", role "+dash(m.Role))
				line(w)
				line(w, "VERB", "ENDS WORK", "ROLES")
				for _, v := range m.Verbs {
					line(w, v.Name, strconv.FormatBool(v.WorkEnding), strings.Join(v.Roles, ","))
				}
			})
		}),
	}
}

// switchCommand reads or sets the master switch.
func (a *app) switchCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "switch [on|off|unset]",
		Short: "Read or set the master switch; unset leaves it to the server's environment",
		Args:  takes("[on|off|unset]"), ValidArgs: []string{"on", "off", "unset"},
		RunE: a.action(func(cmd *cobra.Command, c *client.Client, args []string) error {
			if len(args) == 1 {
				if err := oneOf("the switch", args[0], "on", "off", "unset"); err != nil {
					return err
				}
			}
			f, err := turn(cmd, c, args)
			if err != nil {
				return err
			}
			return a.print(f, func(w io.Writer) {
				value := "unset"
				if f.Value != nil {
					value = onOff(*f.Value)
				}
				line(w, fmt.Sprintf("%s at run time, so it is %s", value, onOff(f.Effective)))
			})
		}),
	}
}

func turn(cmd *cobra.Command, c *client.Client, args []string) (*client.Flag, error) {
	if len(args) == 0 {
		return c.Flag(cmd.Context())
	}
	if args[0] == "unset" {
		return c.SetFlag(cmd.Context(), nil)
	}
	value := args[0] == "on"
	return c.SetFlag(cmd.Context(), &value)
}

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}

// healthCommand asks whether the gateway can do its work.
func (a *app) healthCommand() *cobra.Command {
	return &cobra.Command{
		Use: "health", Short: "Ask whether the gateway is ready", Args: takes(),
		RunE: a.open(func(cmd *cobra.Command, c *client.Client, _ []string) error {
			h, err := c.Health(cmd.Context())
			if err != nil {
				return err
			}
			if err := a.print(h, func(w io.Writer) {
				line(w, "ready:", strconv.FormatBool(h.Ready))
				for _, name := range sortedKeys(h.Checks) {
					line(w, name+":", h.Checks[name])
				}
			}); err != nil {
				return err
			}
			if !h.Ready {
				return errTold
			}
			return nil
		}),
	}
}
