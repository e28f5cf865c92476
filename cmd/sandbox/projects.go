package main

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roboco/sandboxd/client"
)

// projectsCommand looks after projects and their opt-in.
func (a *app) projectsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "projects",
		Short: "List and change projects and what they are opted into",
		Args:  cobra.NoArgs,
		RunE: a.action(func(cmd *cobra.Command, c *client.Client, _ []string) error {
			all, err := c.Projects(cmd.Context())
			if err != nil {
				return err
			}
			return a.print(all, func(w io.Writer) { writeProjects(w, all...) })
		}),
	}
	cmd.AddCommand(a.showProject(), a.putProject(), a.setProject(), a.removeProject(), a.spawnProject())
	return cmd
}

func writeProjects(w io.Writer, all ...client.Project) {
	line(w, "PROJECT", "NAME", "SERVICES", "EXTENSIONS")
	for _, p := range all {
		line(w, p.Slug, dash(p.Name), list(p.Services, "not opted in"), writeExtensions(p.Extensions))
	}
}

// writeExtensions is the form in which they are given on the command line.
func writeExtensions(m map[string][]string) string {
	words := make([]string, 0, len(m))
	for _, service := range sortedKeys(m) {
		words = append(words, service+"="+strings.Join(m[service], ","))
	}
	return dash(strings.Join(words, " "))
}

func (a *app) showProject() *cobra.Command {
	return &cobra.Command{
		Use: "show PROJECT", Short: "Show one project", Args: cobra.ExactArgs(1),
		RunE: a.action(func(cmd *cobra.Command, c *client.Client, args []string) error {
			p, err := c.Project(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.print(p, func(w io.Writer) { writeProjects(w, *p) })
		}),
	}
}

// optIn are the flags of a project's opt-in.
type optIn struct {
	name       string
	services   []string
	extensions []string
}

func (o *optIn) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.name, "name", "", "the project's name for people")
	cmd.Flags().StringSliceVarP(&o.services, "services", "s", nil, "what its agents may have: postgres,redis,mongo")
	cmd.Flags().StringArrayVarP(&o.extensions, "extensions", "x", nil, "features always active, as SERVICE=FEATURE[,FEATURE...]; may be given more than once")
}

func (a *app) putProject() *cobra.Command {
	var o optIn
	cmd := &cobra.Command{
		Use: "put PROJECT", Short: "Make a project, or replace it as a whole", Args: cobra.ExactArgs(1),
		Example: `  sandbox projects put shop --name "The shop" -s postgres,redis -x postgres=vector`,
		RunE: a.action(func(cmd *cobra.Command, c *client.Client, args []string) error {
			extensions, err := parseExtensions(o.extensions)
			if err != nil {
				return err
			}
			p, err := c.PutProject(cmd.Context(), client.Project{Slug: args[0], Name: o.name, Services: o.services, Extensions: extensions})
			if err != nil {
				return err
			}
			return a.print(p, func(w io.Writer) { writeProjects(w, *p) })
		}),
	}
	o.flags(cmd)
	return cmd
}

func (a *app) setProject() *cobra.Command {
	var o optIn
	var out, bare bool
	cmd := &cobra.Command{
		Use: "set PROJECT", Short: "Change what is named of a project, and leave the rest", Args: cobra.ExactArgs(1),
		RunE: a.action(func(cmd *cobra.Command, c *client.Client, args []string) error {
			extensions, err := parseExtensions(o.extensions)
			if err != nil {
				return err
			}
			given := cmd.Flags().Changed
			patch := client.ProjectPatch{
				SetServices: out || given("services"), Services: o.services,
				SetExtensions: bare || given("extensions"), Extensions: extensions,
			}
			if given("name") {
				patch.Name = &o.name
			}
			if patch.Name == nil && !patch.SetServices && !patch.SetExtensions {
				return &usageError{"nothing to change: give --name, --services, --extensions, --opt-out or --bare"}
			}
			p, err := c.PatchProject(cmd.Context(), args[0], patch)
			if err != nil {
				return err
			}
			return a.print(p, func(w io.Writer) { writeProjects(w, *p) })
		}),
	}
	o.flags(cmd)
	cmd.Flags().BoolVar(&out, "opt-out", false, "its agents may have nothing")
	cmd.Flags().BoolVar(&bare, "bare", false, "no features are always active")
	cmd.MarkFlagsMutuallyExclusive("opt-out", "services")
	cmd.MarkFlagsMutuallyExclusive("bare", "extensions")
	return cmd
}

func (a *app) removeProject() *cobra.Command {
	return &cobra.Command{
		Use: "rm PROJECT", Short: "Remove a project", Args: cobra.ExactArgs(1),
		RunE: a.action(func(cmd *cobra.Command, c *client.Client, args []string) error {
			if err := c.DeleteProject(cmd.Context(), args[0]); err != nil {
				return err
			}
			return a.print(map[string]string{"removed": args[0]}, func(w io.Writer) { line(w, "removed: "+args[0]) })
		}),
	}
}

func (a *app) spawnProject() *cobra.Command {
	return &cobra.Command{
		Use: "spawn PROJECT", Short: "Show what an agent of this project is started with", Args: cobra.ExactArgs(1),
		RunE: a.action(func(cmd *cobra.Command, c *client.Client, args []string) error {
			s, err := c.Spawn(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			lines, err := exports(s.Env)
			if err != nil {
				return err
			}
			return a.print(s, func(w io.Writer) {
				_, _ = io.WriteString(w, lines)
				if s.Briefing != nil {
					line(w, "# "+*s.Briefing)
				}
			})
		}),
	}
}
