package engines

import (
	"slices"
	"sort"
)

// Registry is the ordered set of engines; its order is the order of services everywhere.
type Registry []Engine

// Builtin is every engine sandboxd knows.
func Builtin() Registry {
	return Registry{
		Postgres(),
		Redis(),
		Mongo(),
	}
}

// Names lists the services in registry order.
func (r Registry) Names() []string {
	names := make([]string, len(r))
	for i, e := range r {
		names[i] = e.Name
	}
	return names
}

// Lookup finds an engine by its name.
func (r Registry) Lookup(name string) (Engine, bool) {
	i := slices.IndexFunc(r, func(e Engine) bool { return e.Name == name })
	if i < 0 {
		return Engine{}, false
	}
	return r[i], true
}

// Allowed maps each service to its feature allowlist, sorted; a service without features maps to an empty list.
func (r Registry) Allowed() map[string][]string {
	m := make(map[string][]string, len(r))
	for _, e := range r {
		f := slices.Clone(e.Features)
		sort.Strings(f)
		m[e.Name] = f
	}
	return m
}

// WithImages is a copy in which one engine's images are others; an empty one leaves the default.
func (r Registry) WithImages(name, bare, feature string) Registry {
	c := slices.Clone(r)
	for i := range c {
		if c[i].Name != name {
			continue
		}
		if bare != "" {
			c[i].Bare = bare
		}
		if feature != "" {
			c[i].Feature = feature
		}
	}
	return c
}
