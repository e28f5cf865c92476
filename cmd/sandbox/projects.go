package main

import (
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roboco/sandboxd/client"
)

// projectsCommand looks after projects and their opt-in.
func (a *app) projectsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "projects",
		Short: "List and change projects and what they are opted into",
		Args:  takes(),
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
	for _, service := range inOrder(m) {
		words = append(words, service+"="+strings.Join(m[service], ","))
	}
	return dash(strings.Join(words, " "))
}

func (a *app) showProject() *cobra.Command {
	return &cobra.Command{
		Use: "show PROJECT", Short: "Show one project", Args: takes("PROJECT"),
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
	cmd.Flags().StringArrayVarP(&o.extensions, "extensions", "x", nil, "features always active, as SERVICE=FEATURE[,FEATURE...]; may be given more than once; together they are the whole list")
}

// trimmed takes the spaces off that a list such as "postgres, redis" has; nil stays nil.
func trimmed(words []string) []string {
	for i := range words {
		words[i] = strings.TrimSpace(words[i])
	}
	return words
}

// noteIdle tells of extensions that have no effect yet.
func (a *app) noteIdle(p *client.Project) {
	for _, service := range inOrder(p.Extensions) {
		if !slices.Contains(p.Services, service) {
			a.note("the extensions of %s have no effect until the project is opted into it", service)
		}
	}
}

func (a *app) putProject() *cobra.Command {
	var o optIn
	cmd := &cobra.Command{
		Use: "put PROJECT", Short: "Make a project, or replace it as a whole", Args: takes("PROJECT"),
		Example: `  sandbox projects put shop --name "The shop" -s postgres,redis -x postgres=vector`,
		RunE: a.action(func(cmd *cobra.Command, c *client.Client, args []string) error {
			extensions, err := parseExtensions(o.extensions)
			if err != nil {
				return err
			}
			p, err := c.PutProject(cmd.Context(), client.Project{Slug: args[0], Name: o.name, Services: trimmed(o.services), Extensions: extensions})
			if err != nil {
				return err
			}
			a.noteIdle(p)
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
		Use: "set PROJECT", Short: "Change what is named of a project, and leave the rest", Args: takes("PROJECT"),
		Long: `Changes what is named of a project, and leaves the rest. What is named is replaced as a whole: -s names all services, and
-x all extensions, of every service. Sandboxes that live are left as they are.`,
		Example: `  sandbox projects set shop -x postgres=vector,citext -x redis=json
  sandbox projects set shop --opt-out`,
		RunE: a.action(func(cmd *cobra.Command, c *client.Client, args []string) error {
			extensions, err := parseExtensions(o.extensions)
			if err != nil {
				return err
			}
			given := cmd.Flags().Changed
			patch := client.ProjectPatch{
				SetServices: out || given("services"), Services: trimmed(o.services),
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
			a.noteIdle(p)
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
		Use: "rm PROJECT", Short: "Remove a project; its sandboxes stay until their work ends or their time is up", Args: takes("PROJECT"),
		RunE: a.action(func(cmd *cobra.Command, c *client.Client, args []string) error {
			if err := c.DeleteProject(cmd.Context(), args[0]); err != nil {
				return err
			}
			return a.print(map[string]string{"removed": args[0]}, func(w io.Writer) {
				line(w, "removed: "+args[0])
				line(w, "sandboxes that live stay until their work ends or their time is up; to remove one: sandbox rm AGENT")
			})
		}),
	}
}

func (a *app) spawnProject() *cobra.Command {
	return &cobra.Command{
		Use: "spawn PROJECT", Short: "Show what an agent of this project is started with", Args: takes("PROJECT"),
		RunE: a.action(func(cmd *cobra.Command, c *client.Client, args []string) error {
			s, err := c.Spawn(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			lines, err := exports(s.Env)
			if err != nil {
				return err
			}
			if len(s.Services) == 0 {
				a.note("an agent of %s is offered nothing: the project is not known or not opted in, or sandboxes are switched off", args[0])
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
