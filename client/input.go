package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// InputError says which field of a body is malformed, how, and what is allowed instead.
type InputError struct {
	Field   string   // empty when it is the body as a whole
	Problem string   // a sentence without its full stop
	Allowed []string // nil where there is no finite set
}

// Error says all three.
func (e *InputError) Error() string {
	s := e.Problem
	if e.Field != "" {
		s = e.Field + ": " + s
	}
	if e.Allowed != nil {
		s += "; allowed: " + strings.Join(e.Allowed, ", ")
	}
	return s
}

// Fields are a JSON object's members, not read yet. Their readers give *InputError; an absent member and a null one
// read as the zero value.
type Fields map[string]json.RawMessage

// ParseFields reads a body that must be a JSON object with no other members than these. An empty body is an empty object.
func ParseFields(body []byte, allowed ...string) (Fields, error) {
	f := Fields{}
	if len(bytes.TrimSpace(body)) == 0 {
		return f, nil
	}
	var bad *json.UnmarshalTypeError
	err := json.Unmarshal(body, &f)
	if errors.As(err, &bad) || (err == nil && f == nil) {
		return nil, &InputError{Problem: "the body must be a JSON object", Allowed: allowed}
	}
	if err != nil {
		return nil, &InputError{Problem: "the body is not JSON: " + err.Error()}
	}
	for name := range f {
		if !slices.Contains(allowed, name) {
			return nil, &InputError{Field: name, Problem: "there is no such field", Allowed: allowed}
		}
	}
	return f, nil
}

// Has says whether the member is there, null or not.
func (f Fields) Has(name string) bool { _, ok := f[name]; return ok }

// Null says whether the member is absent or null.
func (f Fields) Null(name string) bool {
	raw, ok := f[name]
	return !ok || string(bytes.TrimSpace(raw)) == "null"
}

// String reads a member that must be a string.
func (f Fields) String(name string) (string, error) {
	var s string
	if f.Null(name) {
		return "", nil
	}
	if json.Unmarshal(f[name], &s) != nil {
		return "", &InputError{Field: name, Problem: "it must be a string, not " + kind(f[name])}
	}
	return s, nil
}

// Bool reads a member that must be true, false or null.
func (f Fields) Bool(name string) (*bool, error) {
	if f.Null(name) {
		return nil, nil //nolint:nilnil // null is a value here
	}
	var b bool
	if json.Unmarshal(f[name], &b) != nil {
		return nil, &InputError{Field: name, Problem: "it must be true, false or null, not " + kind(f[name])}
	}
	return &b, nil
}

// Strings reads a member that must be a list of strings.
func (f Fields) Strings(name string) ([]string, error) {
	if f.Null(name) {
		return nil, nil
	}
	return stringList(name, f[name])
}

// StringLists reads a member that must be an object of lists of strings.
func (f Fields) StringLists(name string) (map[string][]string, error) {
	if f.Null(name) {
		return nil, nil
	}
	var m map[string]json.RawMessage
	if json.Unmarshal(f[name], &m) != nil {
		return nil, &InputError{
			Field:   name,
			Problem: `it must be an object of lists of strings, such as {"postgres": ["vector"]}, not ` + kind(f[name]),
		}
	}
	out := make(map[string][]string, len(m))
	for k, raw := range m {
		list, err := stringList(name+"."+k, raw)
		if err != nil {
			return nil, err
		}
		out[k] = list
	}
	return out, nil
}

func stringList(field string, raw json.RawMessage) ([]string, error) {
	var items []json.RawMessage
	if json.Unmarshal(raw, &items) != nil || items == nil {
		return nil, &InputError{Field: field, Problem: `it must be a list of strings, such as ["vector"], not ` + kind(raw)}
	}
	out := make([]string, len(items))
	for i, item := range items {
		if kind(item) != "a string" || json.Unmarshal(item, &out[i]) != nil {
			return nil, &InputError{Field: fmt.Sprintf("%s[%d]", field, i), Problem: "it must be a string, not " + kind(item)}
		}
	}
	return out, nil
}

// kind names what a JSON value is.
func kind(raw json.RawMessage) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '"':
		return "a string"
	case '[':
		return "a list"
	case '{':
		return "an object"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	default:
		return "a number"
	}
}

// ParseSandboxRequest reads the arguments of request_sandbox, wherever they come from. Only shapes are judged here,
// never names: those meet the guards.
func ParseSandboxRequest(body []byte) (SandboxRequest, error) {
	f, err := ParseFields(body, "services", "extensions")
	if err != nil {
		return SandboxRequest{}, err
	}
	var r SandboxRequest
	if r.Services, err = f.Strings("services"); err != nil {
		return SandboxRequest{}, err
	}
	if r.Services != nil && len(r.Services) == 0 {
		return SandboxRequest{}, &InputError{
			Field: "services", Problem: "an empty list asks for nothing; leave the field out to ask for the project's whole set",
		}
	}
	if r.Extensions, err = f.StringLists("extensions"); err != nil {
		return SandboxRequest{}, err
	}
	return r, nil
}
