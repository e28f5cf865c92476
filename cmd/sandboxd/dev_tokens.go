package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// introduce says how to use what has just started. With a token file the tokens go there, and not to the output.
func (p program) introduce(d devParts, cfg config) error {
	var b strings.Builder
	fmt.Fprintf(&b, "sandboxd dev is ready at %s\n\n", d.tokens.URL)
	for _, pr := range d.plan.Projects {
		fmt.Fprintf(&b, "  project %s may have: %s\n", pr.Slug, orNone(strings.Join(pr.Services, ", ")))
	}
	for _, a := range d.plan.Agents {
		fmt.Fprintf(&b, "  agent %s (%s)", a.Slug, a.Role)
		if a.Project != "" {
			fmt.Fprintf(&b, " works on task %s of %s", a.Task, a.Project)
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "  containers: cell %s on network %s; they go when this program ends (Ctrl-C)\n\nIn another shell:\n\n", cfg.Cell, cfg.Network)
	if d.tokenFile != "" {
		if err := writeSecret(d.tokenFile, d.tokens.script(d.plan)); err != nil {
			return err
		}
		fmt.Fprintf(&b, "  . %s\n", d.tokenFile)
	} else {
		for l := range strings.Lines(d.tokens.script(d.plan)) {
			b.WriteString("  " + l)
		}
	}
	b.WriteString(d.plan.walk(sandboxBeside(p.self)))
	if _, err := fmt.Fprint(p.out, b.String()); err != nil {
		return fmt.Errorf("say how to use it: %w", err)
	}
	return nil
}

// walk is what to type next, with the path of the command line's program.
func (s seed) walk(sandbox string) string {
	if len(s.Agents) == 0 {
		return "  ROBOCO_SANDBOX_TOKEN=$SANDBOXD_DEV_OPERATOR_TOKEN " + sandbox + " agents add be-dev-1   # there is no agent yet\n\n"
	}
	first, project := s.Agents[0], s.Agents[0].Project
	if project == "" && len(s.Projects) > 0 {
		project = s.Projects[0].Slug
	}
	start := "  ROBOCO_SANDBOX_TOKEN=$SANDBOXD_DEV_CHOREOGRAPHER_TOKEN " + sandbox + " work start $SANDBOXD_DEV_AGENT --project " +
		cmp.Or(project, "PROJECT") + " --task "
	ask := "  " + sandbox + " request && eval \"$(" + sandbox + " env)\"\n"
	if first.Project == "" {
		return start + "T-1\n" + ask + "\n"
	}
	return ask + "  " + sandbox + " done\n\nWork that has ended gives no databases. Whoever hands out work tells of the next task:\n\n" + start + "T-2\n\n"
}

// sandboxBeside is the command line's program that stands beside this one, else its bare name.
func sandboxBeside(self string) string {
	path, err := filepath.Abs(filepath.Join(filepath.Dir(self), "sandbox"))
	if err != nil || !strings.ContainsRune(self, filepath.Separator) {
		return "sandbox"
	}
	if info, err := os.Stat(path); err != nil || info.IsDir() || strings.ContainsAny(path, " '\"$\\") {
		return "sandbox"
	}
	return path
}

// script is what a shell sources: the first agent's token is the one that the command line uses.
func (t devTokens) script(s seed) string {
	var b strings.Builder
	export := func(name, value string) { fmt.Fprintf(&b, "export %s='%s'\n", name, value) } // neither has a quote in it
	export("ROBOCO_SANDBOX_URL", t.URL)
	if len(s.Agents) > 0 {
		export("ROBOCO_SANDBOX_TOKEN", t.Agents[s.Agents[0].Slug])
		export("SANDBOXD_DEV_AGENT", s.Agents[0].Slug)
	}
	slugs := make([]string, 0, len(t.Agents))
	for slug := range t.Agents {
		slugs = append(slugs, slug)
	}
	slices.Sort(slugs)
	for _, slug := range slugs {
		export("SANDBOXD_DEV_TOKEN_"+strings.ToUpper(strings.ReplaceAll(slug, "-", "_")), t.Agents[slug])
	}
	export("SANDBOXD_DEV_OPERATOR_TOKEN", t.Operator)
	export("SANDBOXD_DEV_CHOREOGRAPHER_TOKEN", t.Choreographer)
	return b.String()
}

// removeSecret removes what writeSecret wrote, unless something else stands there by now.
func removeSecret(path, text string) {
	if have, err := os.ReadFile(path); err == nil && string(have) == text {
		_ = os.Remove(path) // who cannot remove it has been told its name
	}
}

// writeSecret writes a file that only its owner can read, whole or not at all: who waits for it finds it complete.
func writeSecret(path, text string) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // 0600
	if err != nil {
		return fmt.Errorf("write the tokens: %w", err)
	}
	_, err = f.WriteString(text)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("write the tokens: %w", err)
	}
	return nil
}
