package state

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxSlug = 40  // characters of a slug
	maxName = 200 // characters of a project's name, of a task, of a status
	hashLen = 32  // bytes of a SHA-256 sum
)

// ValidSlug says whether s can name a project or an agent: [a-z0-9][a-z0-9-]{0,39}.
func ValidSlug(s string) bool {
	if s == "" || len(s) > maxSlug || s[0] == '-' {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if c != '-' && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// roles are the roles an agent can have, sorted.
func roles() []string {
	return []string{"choreographer", "developer", "documenter", "operator", "qa"}
}

// clone is a catalog that no caller can change any more.
func (c Catalog) clone() Catalog {
	return Catalog{Services: slices.Clone(c.Services), Features: cloneLists(c.Features)}
}

// project is p as it is stored, times apart, or the *InvalidError that says what is wrong.
func (c Catalog) project(p Project) (Project, error) {
	if err := checkSlug("slug", p.Slug); err != nil {
		return Project{}, err
	}
	patch, err := c.patch(p.Slug, ProjectPatch{
		Name:        &p.Name,
		SetServices: true, Services: p.Services,
		SetExtensions: true, Extensions: p.Extensions,
	})
	if err != nil {
		return Project{}, err
	}
	p.Name, p.Services, p.Extensions = *patch.Name, patch.Services, patch.Extensions
	return p, nil
}

// patch is the patch of the project slug as it is stored: a field that is not set stays unset.
func (c Catalog) patch(slug string, p ProjectPatch) (ProjectPatch, error) {
	out := ProjectPatch{SetServices: p.SetServices, SetExtensions: p.SetExtensions}
	if p.Name != nil {
		name, err := projectName(slug, *p.Name)
		if err != nil {
			return ProjectPatch{}, err
		}
		out.Name = &name
	}
	var err error
	if p.SetServices {
		if out.Services, err = c.services(p.Services); err != nil {
			return ProjectPatch{}, err
		}
	}
	if p.SetExtensions {
		if out.Extensions, err = c.extensions(p.Extensions); err != nil {
			return ProjectPatch{}, err
		}
	}
	return out, nil
}

// services deduplicates and brings into registry order; nil stays nil and empty stays empty.
func (c Catalog) services(in []string) ([]string, error) {
	if in == nil {
		return nil, nil
	}
	if bad := outside(in, c.Services); len(bad) > 0 {
		return nil, &InvalidError{Field: "sandbox_services", Problem: unknownServices(bad), Allowed: sorted(c.Services)}
	}
	out := make([]string, 0, len(c.Services))
	for _, s := range c.Services {
		if slices.Contains(in, s) {
			out = append(out, s)
		}
	}
	return out, nil
}

// extensions sorts and deduplicates each list and drops the empty ones; a map with nothing in it is nil. A service that
// the project has not opted in may have an entry: a request ignores it until the project opts in.
func (c Catalog) extensions(in map[string][]string) (map[string][]string, error) {
	const field = "sandbox_extensions"
	names := slices.Sorted(maps.Keys(in))
	if bad := outside(names, c.Services); len(bad) > 0 {
		return nil, &InvalidError{Field: field, Problem: unknownServices(bad), Allowed: sorted(c.Services)}
	}
	var out map[string][]string
	for _, service := range names {
		allowed := sorted(c.Features[service])
		if bad := outside(in[service], allowed); len(bad) > 0 {
			return nil, &InvalidError{Field: field, Problem: service + " does not allow " + quoted(bad), Allowed: allowed}
		}
		if len(in[service]) == 0 {
			continue
		}
		if out == nil {
			out = make(map[string][]string, len(in))
		}
		out[service] = slices.Compact(sorted(in[service]))
	}
	return out, nil
}

func projectName(slug, name string) (string, error) {
	name = strings.TrimSpace(name)
	if name == "" {
		return slug, nil
	}
	if err := checkText("name", name); err != nil {
		return "", err
	}
	if strings.ContainsFunc(name, unicode.IsControl) {
		return "", &InvalidError{Field: "name", Problem: "holds a control character"}
	}
	return name, nil
}

func checkSlug(field, s string) error {
	if ValidSlug(s) {
		return nil
	}
	return &InvalidError{Field: field, Problem: quote(s) + " is not a slug: a to z, 0 to 9 and dashes, no dash first, " +
		fmt.Sprintf("1 to %d characters", maxSlug)}
}

func checkRole(role string) error {
	if slices.Contains(roles(), role) {
		return nil
	}
	return &InvalidError{Field: "role", Problem: "unknown role " + quote(role), Allowed: roles()}
}

func checkHash(sum []byte) error {
	if len(sum) == hashLen {
		return nil
	}
	return &InvalidError{Field: "token", Problem: fmt.Sprintf("its sum is %d bytes, not the %d of SHA-256", len(sum), hashLen)}
}

// errTokenTaken is what both stores answer when the sum belongs to another agent.
func errTokenTaken() error {
	return &InvalidError{Field: "token", Problem: "belongs to another agent"}
}

// checkText holds free text to what both stores can keep, and to a length.
func checkText(field, s string) error {
	if !storable(s) {
		return &InvalidError{Field: field, Problem: "is not UTF-8, or holds a NUL"}
	}
	if n := utf8.RuneCountInString(s); n > maxName {
		return &InvalidError{Field: field, Problem: fmt.Sprintf("is %d characters long, more than %d", n, maxName)}
	}
	return nil
}

// checkWork holds an engagement to its shape. The project may be empty: an engagement need not be bound to one.
func checkWork(e Engagement) error {
	if err := checkSlug("agent", e.Agent); err != nil {
		return err
	}
	if e.Task == "" {
		return &InvalidError{Field: "task", Problem: "is empty"}
	}
	if err := checkText("task", e.Task); err != nil {
		return err
	}
	if err := checkText("project", e.Project); err != nil {
		return err
	}
	return checkText("status", e.Status)
}

func checkOutgoing(out Outgoing) error {
	if out.EventID == "" {
		return &InvalidError{Field: "event_id", Problem: "is empty"}
	}
	if err := checkText("event_id", out.EventID); err != nil {
		return err
	}
	if !json.Valid(out.Event) || !storable(string(out.Event)) {
		return &InvalidError{Field: "event", Problem: "is not JSON in UTF-8"}
	}
	return nil
}

func checkFlag(name string) error {
	if name == "" {
		return &InvalidError{Field: "flag", Problem: "is empty"}
	}
	return checkText("flag", name)
}

// storable says whether Postgres can hold s as text; the store in memory refuses the same.
func storable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsRune(s, 0)
}

// outside lists what of in is not allowed, once each, in the order given.
func outside(in, allowed []string) []string {
	var bad []string
	for _, s := range in {
		if !slices.Contains(allowed, s) && !slices.Contains(bad, s) {
			bad = append(bad, s)
		}
	}
	return bad
}

func unknownServices(bad []string) string {
	if len(bad) == 1 {
		return "unknown service " + quoted(bad)
	}
	return "unknown services " + quoted(bad)
}

// quoted names at most ten values, each cut short: an error text stays readable whatever was sent.
func quoted(names []string) string {
	const most = 10
	var b strings.Builder
	for i, n := range names {
		if i == most {
			fmt.Fprintf(&b, " and %d more", len(names)-most)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(quote(n))
	}
	return b.String()
}

func quote(s string) string {
	const most = 60
	if utf8.RuneCountInString(s) > most {
		s = string([]rune(s)[:most]) + "…"
	}
	return fmt.Sprintf("%q", s)
}

// sorted is a sorted copy, never nil.
func sorted(in []string) []string {
	out := append(make([]string, 0, len(in)), in...)
	slices.Sort(out)
	return out
}

// cloneLists copies a map of lists; nil stays nil, in the map and in the lists.
func cloneLists(in map[string][]string) map[string][]string {
	if in == nil {
		return nil
	}
	out := make(map[string][]string, len(in))
	for k, v := range in {
		out[k] = slices.Clone(v)
	}
	return out
}
