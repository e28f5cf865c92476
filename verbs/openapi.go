package verbs

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/roboco/sandboxd/client"
)

// serveOpenAPI answers GET /openapi.json.
func (g *Gateway) serveOpenAPI(w http.ResponseWriter, _ *http.Request, _ *call) error {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(g.openAPI)
	return nil
}

// openAPI describes the routes (OpenAPI 3.1). Schemas of answers come from the wire types themselves.
func openAPI(routes []route, version string) ([]byte, error) {
	envelope, err := schemaOf(typeOf[client.Envelope]())
	if err != nil {
		return nil, err
	}
	paths := map[string]map[string]any{}
	for _, rt := range routes {
		op, err := operation(rt)
		if err != nil {
			return nil, err
		}
		if paths[rt.path] == nil {
			paths[rt.path] = map[string]any{}
		}
		paths[rt.path][strings.ToLower(rt.method)] = op
	}
	doc := map[string]any{
		"openapi": "3.1.0",
		"info": map[string]any{
			"title": "sandboxd", "version": version,
			"description": "Throwaway databases for coding agents. Every error has the Envelope as its body; refusals of request_sandbox are HTTP 200.",
			"license":     map[string]any{"name": "Apache-2.0", "identifier": "Apache-2.0"},
		},
		"servers":  []any{map[string]any{"url": "/"}},
		"security": []any{map[string]any{"bearer": []string{}}},
		"paths":    paths,
		"components": map[string]any{
			"schemas":         map[string]any{"Envelope": envelope, "Accepted": must(schemaOf(typeOf[client.Accepted]()))},
			"securitySchemes": map[string]any{"bearer": map[string]any{"type": "http", "scheme": "bearer"}},
		},
	}
	b, err := json.MarshalIndent(doc, "", " ")
	if err != nil {
		return nil, fmt.Errorf("write the API's description: %w", err)
	}
	return b, nil
}

// must is for a schema of a type that is compiled in and covered by the test of the description.
func must(s *jsonschema.Schema, err error) *jsonschema.Schema {
	if err != nil {
		return &jsonschema.Schema{Description: err.Error()}
	}
	return s
}

// schemaOf is a wire type's schema.
func schemaOf(t reflect.Type) (*jsonschema.Schema, error) {
	s, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[json.RawMessage](): {},
		reflect.TypeFor[map[string][]string](): { // null is a value of its own
			Types:                []string{"null", "object"},
			AdditionalProperties: &jsonschema.Schema{Types: []string{"null", "array"}, Items: &jsonschema.Schema{Type: "string"}},
		},
	}})
	if err != nil {
		return nil, fmt.Errorf("describe %s: %w", t, err)
	}
	return s, nil
}

var pathParam = regexp.MustCompile(`\{(\w+)\}`)

// operation describes one route.
func operation(rt route) (map[string]any, error) {
	op := map[string]any{"operationId": rt.name, "summary": rt.summary, "tags": []string{tagOf(rt.path)}}
	if rt.open {
		op["security"] = []any{}
	}
	var params []any
	for _, m := range pathParam.FindAllStringSubmatch(rt.path, -1) {
		params = append(params, map[string]any{"name": m[1], "in": "path", "required": true, "schema": map[string]any{"type": "string"}})
	}
	for _, p := range rt.query {
		params = append(params, map[string]any{
			"name": p.name, "in": p.in, "description": p.about, "schema": map[string]any{"type": p.kind},
		})
	}
	if params != nil {
		op["parameters"] = params
	}
	if rt.in != nil {
		op["requestBody"] = bodyOf(rt)
	}
	responses, err := responsesOf(rt)
	if err != nil {
		return nil, err
	}
	op["responses"] = responses
	return op, nil
}

func tagOf(path string) string {
	parts := strings.Split(strings.TrimPrefix(path, "/api/v1/"), "/")
	if !strings.HasPrefix(path, "/api/v1/") {
		return "server"
	}
	return parts[0]
}

// bodyOf describes what a route reads. Where nothing is required the body may be empty.
func bodyOf(rt route) map[string]any {
	props, required := map[string]any{}, []string{}
	for _, f := range rt.in {
		s := kindSchema(f.kind)
		s["description"] = f.about
		if f.null {
			s["type"] = []any{s["type"], "null"}
		}
		props[f.name] = s
		if f.required {
			required = append(required, f.name)
		}
	}
	schema := map[string]any{"type": "object", "properties": props, "additionalProperties": rt.path == "/mcp" || rt.name == "publish_event"}
	if len(required) > 0 {
		schema["required"] = required
	}
	return map[string]any{
		"required": len(required) > 0,
		"content":  map[string]any{"application/json": map[string]any{"schema": schema}},
	}
}

func kindSchema(kind string) map[string]any {
	strs := map[string]any{"type": "array", "items": map[string]any{"type": "string"}}
	switch kind {
	case "strings":
		return strs
	case "lists":
		return map[string]any{"type": "object", "additionalProperties": strs}
	default:
		return map[string]any{"type": kind}
	}
}

// responsesOf describes what a route answers: success, and each failure with the envelope.
func responsesOf(rt route) (map[string]any, error) {
	ok := map[string]any{"description": "Success."}
	switch {
	case rt.out != nil:
		schema, err := schemaOf(rt.out)
		if err != nil {
			return nil, err
		}
		var s any = schema
		if rt.out == typeOf[client.Envelope]() {
			s = ref("Envelope")
		}
		ok["content"] = map[string]any{"application/json": map[string]any{"schema": s}}
	case rt.media != "":
		ok["content"] = map[string]any{rt.media: map[string]any{"schema": map[string]any{"type": "string"}}}
	}
	out := map[string]any{strconv.Itoa(max(rt.status, http.StatusOK)): ok}
	if rt.name == RequestSandbox {
		out["202"] = map[string]any{
			"description": "Accepted (Prefer: respond-async).",
			"content":     map[string]any{"application/json": map[string]any{"schema": ref("Accepted")}},
		}
	}
	if rt.name == "put_project" {
		out["201"] = ok
	}
	for _, status := range rt.allFailures() {
		out[strconv.Itoa(status)] = map[string]any{
			"description": http.StatusText(status) + ".",
			"content":     map[string]any{"application/json": map[string]any{"schema": ref("Envelope")}},
		}
	}
	return out, nil
}

// allFailures lists the statuses a route may fail with, sorted.
func (rt route) allFailures() []int {
	all := slices.Clone(rt.failures)
	if !rt.open {
		all = append(all, http.StatusUnauthorized, http.StatusServiceUnavailable)
		if !rt.unlimited {
			all = append(all, http.StatusTooManyRequests)
		}
	}
	if rt.roles != nil {
		all = append(all, http.StatusForbidden)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func ref(name string) map[string]any {
	return map[string]any{"$ref": "#/components/schemas/" + name}
}
