package verbs_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/events/eventstest"
)

// described is what the tests read of the description.
type described struct {
	OpenAPI string `json:"openapi"`
	Info    struct{ Title, Version string }
	Paths   map[string]map[string]struct {
		OperationID string `json:"operationId"`
		Summary     string
		Security    *[]any
		Parameters  []struct {
			Name, In string
			Required bool
			Schema   json.RawMessage
		}
		RequestBody *struct {
			Content map[string]struct{ Schema json.RawMessage }
		} `json:"requestBody"`
		Responses map[string]struct {
			Description string
			Content     map[string]struct{ Schema json.RawMessage }
		}
	}
	Components struct {
		Schemas map[string]json.RawMessage
	}
}

func TestOpenAPI(t *testing.T) {
	t.Parallel()
	s := newScene(t, eventstest.StartEmbedded(t), patience)
	raw := s.call("", "GET", "/openapi.json", "").body
	var d described
	require.NoError(t, json.Unmarshal([]byte(raw), &d))
	require.Equal(t, "3.1.0", d.OpenAPI)
	require.NotEmpty(t, d.Info.Title)
	require.NotEmpty(t, d.Info.Version)

	t.Log("every row is described, and nothing that is not there")
	want := map[string]bool{}
	for _, x := range rows() {
		want[x.method+" "+pattern(d, x.path)] = true
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/openapi.json", "/"} {
		want["GET "+path] = true
	}
	got, ids := map[string]bool{}, map[string]bool{}
	for path, methods := range d.Paths {
		for method, op := range methods {
			name := strings.ToUpper(method) + " " + path
			got[name] = true
			require.False(t, ids[op.OperationID], "operation IDs are unique: %s", op.OperationID)
			ids[op.OperationID] = true
			require.NotEmpty(t, op.Summary, name)
			require.NotEmpty(t, op.Responses, name)
			for _, p := range op.Parameters {
				require.Equal(t, p.In == "path", strings.Contains(path, "{"+p.Name+"}"), name)
				require.Equal(t, p.In == "path", p.Required, name)
				s.validSchema(d, p.Schema)
			}
			require.Equal(t, strings.Count(path, "{"), count(places(op.Parameters), "path"), name)
			if op.RequestBody != nil {
				for _, c := range op.RequestBody.Content {
					s.validSchema(d, c.Schema)
				}
			}
			for status, r := range op.Responses {
				require.NotEmpty(t, r.Description, name)
				for _, c := range r.Content {
					s.validSchema(d, c.Schema)
				}
				if status >= "4" && path != "/readyz" {
					require.Contains(t, string(r.Content["application/json"].Schema), "Envelope", "%s %s", name, status)
				}
			}
			open := op.Security != nil
			_, refuses := op.Responses["401"]
			require.Equal(t, !open, refuses, name)
		}
	}
	require.Equal(t, want, got)
	for _, schema := range d.Components.Schemas {
		s.validSchema(d, schema)
	}
}

// places lists where parameters are.
func places[P ~[]struct {
	Name, In string
	Required bool
	Schema   json.RawMessage
}](params P) (out []string) {
	for _, p := range params {
		out = append(out, p.In)
	}
	return out
}

// pattern is the described path that a concrete one is an instance of.
func pattern(d described, path string) string {
	if _, ok := d.Paths[path]; ok {
		return path
	}
	mux := http.NewServeMux()
	for p := range d.Paths {
		mux.Handle(p, http.NotFoundHandler())
	}
	r, err := http.NewRequest(http.MethodGet, path, nil)
	if err != nil {
		return err.Error()
	}
	_, found := mux.Handler(r)
	return found
}

// validSchema asserts that a schema is one, and that what it refers to is there.
func (s *scene) validSchema(d described, raw json.RawMessage) {
	s.Helper()
	var ref struct {
		Ref string `json:"$ref"`
	}
	require.NoError(s, json.Unmarshal(raw, &ref), string(raw))
	if ref.Ref != "" {
		require.Contains(s, d.Components.Schemas, strings.TrimPrefix(ref.Ref, "#/components/schemas/"))
		return
	}
	var schema jsonschema.Schema
	require.NoError(s, json.Unmarshal(raw, &schema), string(raw))
	_, err := schema.Resolve(nil)
	require.NoError(s, err, string(raw))
}

// TestAnswersMatchTheirDescription holds real answers to the schemas that are served.
func TestAnswersMatchTheirDescription(t *testing.T) {
	t.Parallel()
	s := newScene(t, eventstest.StartEmbedded(t), patience)
	var d described
	require.NoError(t, json.Unmarshal([]byte(s.call("", "GET", "/openapi.json", "").body), &d))
	s.work()
	s.engage(dev, task)
	s.call(dev, "POST", requestPath, `{"extensions":{"redis":["json"]}}`)
	s.keepLetter(letterID, "nonsense", "1")
	calls := []row{
		{"PUT", "/api/v1/projects/shop", `{"sandbox_services":["redis"],"sandbox_extensions":{"redis":["json"]}}`, []string{ops}},
		{"PUT", "/api/v1/projects/bare", `{}`, []string{ops}},
		{"POST", "/api/v1/agents", `{"slug":"x","role":"qa"}`, []string{ops}},
	}
	for _, x := range rows() {
		if x.method == http.MethodGet && !strings.HasSuffix(x.path, "/events") {
			calls = append(calls, x)
		}
	}
	calls = append(calls, row{"POST", requestPath, "", []string{dev}}, row{"POST", requestPath, "", []string{doc}},
		row{"POST", "/api/v1/do/i_am_idle", "", []string{dev}}, row{"GET", "/readyz", "", []string{dev}})
	for _, x := range calls {
		slug := dev
		if x.roles != nil {
			slug = x.roles[0]
		}
		a := s.call(slug, x.method, x.path, x.body)
		require.Less(t, a.status, 300, "%s %s: %s", x.method, x.path, a.body)
		op := d.Paths[pattern(d, x.path)][strings.ToLower(x.method)]
		status := http.StatusText(a.status)
		r, ok := op.Responses[map[string]string{"OK": "200", "Created": "201"}[status]]
		require.True(t, ok, "%s %s answers %d, which is not described", x.method, x.path, a.status)
		raw := r.Content["application/json"].Schema
		if strings.Contains(string(raw), "$ref") {
			raw = d.Components.Schemas["Envelope"]
		}
		var schema jsonschema.Schema
		require.NoError(t, json.Unmarshal(raw, &schema))
		resolved, err := schema.Resolve(nil)
		require.NoError(t, err)
		var v any
		require.NoError(t, json.Unmarshal([]byte(a.body), &v))
		require.NoError(t, resolved.Validate(v), "%s %s: %s", x.method, x.path, a.body)
	}
}
