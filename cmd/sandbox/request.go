package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/roboco/sandboxd/client"
)

// requestCommand is the one verb that gives databases.
func (a *app) requestCommand() *cobra.Command {
	var extensions []string
	var quiet bool
	cmd := &cobra.Command{
		Use:   "request [SERVICE...]",
		Short: "Ask for your databases and wait until they are ready",
		Long: `Asks for your databases and waits until they are ready. With no SERVICE it asks for all that your project is opted
into. Asking again gives the same databases; nothing is lost by interrupting it.`,
		Example: `  sandbox request
  sandbox request postgres redis
  sandbox request postgres -x postgres=vector,uuid-ossp && eval "$(sandbox env)"`,
		RunE: a.action(func(cmd *cobra.Command, c *client.Client, args []string) error {
			wanted, err := parseExtensions(extensions)
			if err != nil {
				return err
			}
			ask := client.SandboxRequest{Extensions: wanted}
			if len(args) > 0 {
				ask.Services = args
			}
			p := newProgress(a.err, a.terminal, quiet)
			env, err := c.RequestSandbox(cmd.Context(), ask, p.tell)
			p.end()
			if err != nil {
				return err
			}
			return a.print(env, func(w io.Writer) { writeEvidence(w, env.Evidence, true) })
		}),
	}
	cmd.Flags().StringArrayVarP(&extensions, "extensions", "x", nil, "features to have, as SERVICE=FEATURE[,FEATURE...]; may be given more than once")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "tell no progress")
	return cmd
}

// parseExtensions reads SERVICE=FEATURE,FEATURE words; nil when there are none.
func parseExtensions(words []string) (map[string][]string, error) {
	if len(words) == 0 {
		return nil, nil
	}
	m := map[string][]string{}
	for _, w := range words {
		service, features, ok := strings.Cut(w, "=")
		if !ok || service == "" || features == "" {
			return nil, &usageError{fmt.Sprintf("%q is not SERVICE=FEATURE[,FEATURE...]", w)}
		}
		m[strings.TrimSpace(service)] = append(m[strings.TrimSpace(service)], trimmed(strings.Split(features, ","))...)
	}
	return m, nil
}

// writeEvidence shows where each engine is; outcome says whether there is one to show.
func writeEvidence(w io.Writer, evidence map[string]client.Evidence, outcome bool) {
	head := []string{"ENGINE", "URL", "FEATURES", "EXPIRES"}
	if outcome {
		head = slices.Insert(head, 1, "OUTCOME")
	}
	line(w, head...)
	for _, name := range inOrder(evidence) {
		e := evidence[name]
		row := []string{name, e.URL, dash(strings.Join(e.AvailableExtensions, ",")), e.ExpiresAt.Local().Format(time.DateTime)}
		if outcome {
			row = slices.Insert(row, 1, e.Outcome)
		}
		line(w, row...)
	}
	for _, name := range inOrder(evidence) {
		if reason := evidence[name].Reason; outcome && reason != "" {
			line(w, name+": "+reason)
		}
	}
}

// inOrder is a map's services in the order that they have everywhere; what is not known here comes last, by name.
func inOrder[V any](m map[string]V) []string {
	known := []string{"postgres", "redis", "mongo"}
	rank := func(name string) int {
		if i := slices.Index(known, name); i >= 0 {
			return i
		}
		return len(known)
	}
	keys := sortedKeys(m)
	slices.SortStableFunc(keys, func(a, b string) int { return rank(a) - rank(b) })
	return keys
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
