package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// inWords says what was wrong with a command line without the library's own notation.
func inWords(err error) string {
	text := err.Error()
	var misuse *usageError
	if errors.As(err, &misuse) {
		return text
	}
	for _, x := range []struct {
		pattern string
		words   func(m []string) string
	}{
		{`^invalid argument "(.*)" for "(?:-\w, )?(--[\w-]+)" flag: .*(?:ParseInt|strconv).*`, func(m []string) string {
			return fmt.Sprintf("%s takes a number, not %q", m[2], m[1])
		}},
		{`^invalid argument "(.*)" for "(?:-\w, )?(--[\w-]+)" flag: .*`, func(m []string) string {
			return fmt.Sprintf("%s does not take %q", m[2], m[1])
		}},
		{`^if any flags in the group \[(\S+) (\S+)\] are set .*`, func(m []string) string {
			return fmt.Sprintf("--%s and --%s cannot be given together", m[1], m[2])
		}},
		{`^required flag\(s\) (.*) not set$`, func(m []string) string {
			return "missing: --" + strings.Join(regexp.MustCompile(`[\w-]+`).FindAllString(m[1], -1), ", --")
		}},
		{`^unknown shorthand flag: '(.)' in .*`, func(m []string) string { return "there is no flag -" + m[1] }},
		{`^unknown flag: (.*)`, func(m []string) string { return "there is no flag " + m[1] }},
		{`^flag needs an argument: (?:'(.)' in .*|(--.*))`, func(m []string) string {
			if m[2] != "" {
				return m[2] + " needs a value"
			}
			return "-" + m[1] + " needs a value"
		}},
	} {
		if m := regexp.MustCompile(x.pattern).FindStringSubmatch(text); m != nil {
			return x.words(m)
		}
	}
	return text
}

// takes holds a command's arguments to these, named as in its usage line; the last may be left out, or given more than
// once, where its name says so ("[AGENT]", "AGENT...").
func takes(names ...string) cobra.PositionalArgs {
	least, most := 0, len(names)
	for _, n := range names {
		if !strings.HasPrefix(n, "[") {
			least++
		}
		if strings.Contains(n, "...") {
			most = -1
		}
	}
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) > 0 && cmd.HasSubCommands():
			return noCommand(cmd, args[0])
		case len(args) < least:
			return &usageError{"missing: " + strings.Join(names[len(args):least], " ")}
		case most >= 0 && len(args) > most:
			return &usageError{fmt.Sprintf("there is no use for %q here", args[most])}
		default:
			return nil
		}
	}
}

// noCommand says that there is none of that name, and which are like it.
func noCommand(cmd *cobra.Command, name string) error {
	words := fmt.Sprintf("%s has no command %q", cmd.CommandPath(), name)
	cmd.SuggestionsMinimumDistance = 2
	if like := cmd.SuggestionsFor(name); len(like) > 0 {
		words += "; the nearest is " + like[0]
	}
	return &usageError{words}
}

// oneOf refuses a word that is none of these.
func oneOf(what, word string, allowed ...string) error {
	if slices.Contains(allowed, word) {
		return nil
	}
	return &usageError{fmt.Sprintf("%s is %s, not %q", what, strings.Join(allowed, ", "), word)}
}

// within refuses a number that was given and is outside of its bounds.
func within(cmd *cobra.Command, flag string, n, least, most int) error {
	if cmd.Flags().Changed(flag) && (n < least || n > most) {
		return &usageError{fmt.Sprintf("--%s is a number from %d to %d, not %d", flag, least, most, n)}
	}
	return nil
}
