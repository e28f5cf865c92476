package verbs

import (
	"maps"
	"slices"

	"github.com/roboco/sandboxd/client"
)

// The roles.
const (
	RoleDeveloper     = "developer"
	RoleQA            = "qa"
	RoleDocumenter    = "documenter"
	RoleChoreographer = "choreographer"
	RoleOperator      = "operator"
)

// RequestSandbox is the verb that asks for a sandbox.
const RequestSandbox = "request_sandbox"

// Roles is the manifest: verb -> the roles that carry it. request_sandbox is held to it by the worker; the work-ending
// verbs are any agent's.
type Roles map[string][]string

// DefaultRoles is the manifest as it stands unless it is configured.
func DefaultRoles() Roles {
	r := Roles{RequestSandbox: {RoleDeveloper, RoleQA}}
	for _, verb := range workEnding() {
		r[verb] = []string{RoleChoreographer, RoleDeveloper, RoleDocumenter, RoleOperator, RoleQA}
	}
	return r
}

// workEnding lists the verbs after which an agent's sandbox goes.
func workEnding() []string {
	return []string{"fail_review", "i_am_done", "i_am_idle", "i_documented", "pass_review", "unclaim"}
}

// verbs lists every verb, sorted.
func (r Roles) verbs() []string { return slices.Sorted(maps.Keys(r)) }

// describe is the manifest on the wire.
func (r Roles) describe() []client.VerbDescription {
	out := make([]client.VerbDescription, 0, len(r))
	for _, verb := range r.verbs() {
		out = append(out, client.VerbDescription{
			Name: verb, Roles: slices.Sorted(slices.Values(r[verb])), WorkEnding: slices.Contains(workEnding(), verb),
		})
	}
	return out
}
