package worker

import (
	"slices"

	"github.com/roboco/sandboxd/events"
)

// union is every feature of both, sorted, once.
func union(a, b []string) []string {
	u := append(slices.Clone(a), b...)
	slices.Sort(u)
	return slices.Compact(u)
}

// missing is what of want is not in have, in want's order.
func missing(have, want []string) []string {
	var m []string
	for _, f := range want {
		if !slices.Contains(have, f) {
			m = append(m, f)
		}
	}
	return m
}

func covers(have, want []string) bool { return len(missing(have, want)) == 0 }

func wanted(wants []events.Want, engine string) bool {
	return slices.ContainsFunc(wants, func(w events.Want) bool { return w.Engine == engine })
}
