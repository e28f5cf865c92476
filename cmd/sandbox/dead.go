package main

import (
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/roboco/sandboxd/client"
)

const deadHelp = `Dead letters are events that could not be worked on: no event at all (undecodable), never to be accepted (refused), begun
too often (exhausted), or met by a bug each time (panicked). Each is kept with its reason; the oldest go when there are
more than about a thousand.

"retry" puts one back under a fresh time. An end can always be put back: what is to be removed is decided anew. A request
is put back only while somebody may still wait for it, and an event from outside only if nothing came after it.`

// deadCommand looks after dead letters.
func (a *app) deadCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "dead", Short: "Look after events that could not be worked on", Long: deadHelp, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.listDead(), a.showDead(), a.retryDead(), a.dropDead())
	return cmd
}

func (a *app) listDead() *cobra.Command {
	var before string
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List dead letters, the newest first", Args: cobra.NoArgs,
		RunE: a.action(func(cmd *cobra.Command, c *client.Client, _ []string) error {
			page, err := c.DeadLetters(cmd.Context(), before, limit)
			if err != nil {
				return err
			}
			return a.print(page, func(w io.Writer) {
				line(w, "LETTER", "KEPT", "TYPE", "AGENT", "CAUSE", "RETRIED", "REASON")
				for _, l := range page.Letters {
					line(w, l.ID, l.KeptAt.Local().Format(time.DateTime), dash(l.Type), dash(l.Agent), l.Cause, strconv.Itoa(l.Retried), dash(l.Reason))
				}
				if page.NextBefore != "" {
					line(w, "more: --before "+page.NextBefore)
				}
			})
		}),
	}
	cmd.Flags().StringVar(&before, "before", "", "go on after this letter, as the page before says")
	cmd.Flags().IntVar(&limit, "limit", 0, "how many, 1 to 500; 50")
	return cmd
}

func (a *app) showDead() *cobra.Command {
	return &cobra.Command{
		Use: "show LETTER", Short: "Show one dead letter, with the entry as it stood", Args: cobra.ExactArgs(1),
		RunE: a.action(func(cmd *cobra.Command, c *client.Client, args []string) error {
			l, err := c.DeadLetter(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.print(l, func(w io.Writer) {
				line(w, "letter:", l.ID)
				line(w, "kept:", l.KeptAt.Local().Format(time.DateTime))
				line(w, "published:", l.PublishedAt.Local().Format(time.DateTime)+", entry "+l.Entry)
				line(w, "cause:", l.Cause)
				line(w, "reason:", dash(l.Reason))
				line(w, "retried:", strconv.Itoa(l.Retried))
				if l.Problem != "" {
					line(w, "cannot be decoded:", l.Problem)
				}
				for _, name := range sortedKeys(l.Fields) {
					line(w, "  "+strconv.Quote(name), strconv.Quote(l.Fields[name]))
				}
			})
		}),
	}
}

func (a *app) retryDead() *cobra.Command {
	return &cobra.Command{
		Use: "retry LETTER", Short: "Put a dead letter back to be worked on", Long: deadHelp, Args: cobra.ExactArgs(1),
		RunE: a.action(func(cmd *cobra.Command, c *client.Client, args []string) error {
			r, err := c.RetryDeadLetter(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.print(r, func(w io.Writer) { line(w, "put back as entry "+r.StreamID) })
		}),
	}
}

func (a *app) dropDead() *cobra.Command {
	return &cobra.Command{
		Use: "drop LETTER...", Short: "Remove dead letters for good", Args: cobra.MinimumNArgs(1),
		RunE: a.action(func(cmd *cobra.Command, c *client.Client, args []string) error {
			for _, id := range args {
				if err := c.DropDeadLetter(cmd.Context(), id); err != nil {
					return err
				}
			}
			return a.print(map[string][]string{"dropped": args}, func(w io.Writer) {
				for _, id := range args {
					line(w, "dropped: "+id)
				}
			})
		}),
	}
}
