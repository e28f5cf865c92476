package verbs

import (
	"net/http"
	"reflect"
	"slices"
	"sort"
	"strings"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/events"
)

// route is one row of the API: who may call it, what answers, and what its description says.
type route struct {
	method, path string
	name         string // operation ID, and the label of its metrics
	summary      string
	open         bool     // needs no token
	unlimited    bool     // is not counted against the caller's rate
	roles        []string // may call it; nil is any token
	handle       handler

	query    []param
	in       []field      // of the body
	out      reflect.Type // of the answer; nil where it has none that is JSON
	status   int          // of success; 200
	media    string       // of the answer; application/json
	failures []int        // beside those that every such route has
}

// param is a query parameter, or a header.
type param struct{ name, in, kind, about string }

// field is one member of a body.
type field struct {
	name, kind, about string // kind: string, boolean, strings, lists, object
	required          bool
	null              bool // null is a value
}

// allows refuses a role that the path is not for.
func (rt route) allows(who principal) error {
	if rt.roles == nil || slices.Contains(rt.roles, who.role) {
		return nil
	}
	return forbidden("the role " + who.role + " may not " + rt.method + " " + rt.path + "; only " + strings.Join(rt.roles, ", ") + " may")
}

func typeOf[T any]() reflect.Type { return reflect.TypeFor[T]() }

// routes is every row but the catch-all.
func (g *Gateway) routes() []route {
	return slices.Concat(g.agentRoutes(), g.projectRoutes(), g.operatorRoutes(), g.deadRoutes(), g.openRoutes())
}

// agentRoutes are what agents and the choreographer call.
func (g *Gateway) agentRoutes() []route {
	logs := []param{{"engine", "query", "string", "one engine; every one when left out"}, {"lines", "query", "integer", "1 to 1000; 100"}}
	return []route{
		{
			method: http.MethodPost, path: "/api/v1/do/request_sandbox", name: RequestSandbox, handle: g.requestSandbox,
			summary: "Get the caller's sandbox and wait for it; with Prefer: respond-async answer 202 and say where its events are",
			query:   []param{{"Prefer", "header", "string", "respond-async"}},
			in: []field{
				{name: "services", kind: "strings", about: "which services to answer with; the project's whole set when left out", null: true},
				{name: "extensions", kind: "lists", about: "features to activate, by service", null: true},
			},
			out: typeOf[client.Envelope](), failures: []int{http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge},
		},
		{
			method: http.MethodGet, path: "/api/v1/requests/{id}/events", name: "request_events", handle: g.requestEvents,
			summary:  "Follow one's own request: progress events, then one result event with the envelope",
			query:    []param{{"Last-Event-ID", "header", "string", "go on after this event"}},
			media:    "text/event-stream",
			failures: []int{http.StatusNotFound},
		},
		{
			method: http.MethodPost, path: "/api/v1/do/{verb}", name: "end_work", handle: g.endWork,
			summary: "End the work on a task: " + strings.Join(workEnding(), ", "),
			in:      []field{{name: "task_id", kind: "string", about: "the engagement's when left out", null: true}},
			out:     typeOf[client.Envelope](),
			failures: []int{
				http.StatusForbidden, http.StatusNotFound, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge,
			},
		},
		{
			method: http.MethodGet, path: "/api/v1/sandbox", name: "own_sandbox", handle: g.ownSandbox,
			summary: "The caller's own sandbox, with its credentials", out: typeOf[client.Sandbox](),
			failures: []int{http.StatusForbidden, http.StatusNotFound},
		},
		{
			method: http.MethodGet, path: "/api/v1/sandbox/logs", name: "own_logs", handle: g.ownLogs, query: logs,
			summary: "The last lines of the caller's engines, passwords blanked", out: typeOf[client.Logs](),
			failures: []int{http.StatusForbidden, http.StatusUnprocessableEntity},
		},
		{
			method: http.MethodGet, path: "/api/v1/sandboxes/{agent}/logs", name: "agent_logs", handle: g.agentLogs, query: logs,
			summary: "The last lines of an agent's engines, passwords blanked", out: typeOf[client.Logs](),
			roles: []string{RoleOperator}, failures: []int{http.StatusNotFound, http.StatusUnprocessableEntity},
		},
		{
			method: http.MethodPost, path: "/api/v1/events", name: "publish_event", handle: g.publishEvent,
			summary: "Publish one event, CloudEvents JSON: " + strings.Join(choreographed(), ", "),
			roles:   []string{RoleChoreographer}, out: typeOf[client.Publication](),
			in: []field{
				{name: "specversion", kind: "string", about: "1.0"},
				{name: "id", kind: "string", about: "publishing it again changes nothing", required: true},
				{name: "type", kind: "string", about: strings.Join(choreographed(), ", "), required: true},
				{name: "source", kind: "string", about: "who says so", required: true},
				{name: "subject", kind: "string", about: "the agent's slug", required: true},
				{name: "time", kind: "string", about: "RFC 3339"},
				{name: "traceparent", kind: "string", about: "W3C trace context"},
				{name: "data", kind: "object", about: "by the type", required: true},
			},
			failures: []int{http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge},
		},
		{
			method: http.MethodGet, path: "/api/v1/engines", name: "list_engines", handle: g.listEngines,
			summary: "The registry of engines with their allowlists", out: typeOf[struct {
				Engines []client.EngineDescription `json:"engines"`
			}](),
		},
		{
			method: http.MethodGet, path: "/api/v1/verbs", name: "list_verbs", handle: g.listVerbs,
			summary: "The verbs, the roles that carry them, and who the caller is", out: typeOf[client.Manifest](),
		},
	}
}

// projectRoutes are projects and their opt-in.
func (g *Gateway) projectRoutes() []route {
	operator := []string{RoleOperator}
	write := []field{
		{name: "slug", kind: "string", about: "that of the path, if it is there at all"},
		{name: "name", kind: "string", about: "the slug when left out"},
		{name: "sandbox_services", kind: "strings", about: "the services the project is opted into; null: not opted in", null: true},
		{name: "sandbox_extensions", kind: "lists", about: "features that every sandbox has, by service; null: bare", null: true},
	}
	return []route{
		{
			method: http.MethodGet, path: "/api/v1/projects", name: "list_projects", handle: g.listProjects, roles: operator,
			summary: "Every project", out: typeOf[struct {
				Projects []client.Project `json:"projects"`
			}](),
		},
		{
			method: http.MethodGet, path: "/api/v1/projects/{slug}", name: "get_project", handle: g.getProject, roles: operator,
			summary: "One project", out: typeOf[client.Project](), failures: []int{http.StatusNotFound},
		},
		{
			method: http.MethodPut, path: "/api/v1/projects/{slug}", name: "put_project", handle: g.putProject, roles: operator,
			summary: "Make or replace a project; 201 when it is new", in: write, out: typeOf[client.Project](),
			failures: []int{http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge},
		},
		{
			method: http.MethodPatch, path: "/api/v1/projects/{slug}", name: "patch_project", handle: g.patchProject, roles: operator,
			summary: "Change what is named, and leave the rest; null is a value", in: write, out: typeOf[client.Project](),
			failures: []int{http.StatusNotFound, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge},
		},
		{
			method: http.MethodDelete, path: "/api/v1/projects/{slug}", name: "delete_project", handle: g.deleteProject, roles: operator,
			summary: "Remove a project; sandboxes that live stay until their work ends or their time is up", status: http.StatusNoContent, failures: []int{http.StatusNotFound},
		},
		{
			method: http.MethodGet, path: "/api/v1/projects/{slug}/spawn", name: "spawn", handle: g.spawn, unlimited: true,
			roles:   []string{RoleChoreographer, RoleOperator},
			summary: "What an agent of this project is started with; never credentials", out: typeOf[client.Spawn](),
		},
	}
}

// operatorRoutes are what operators call beside projects.
func (g *Gateway) operatorRoutes() []route {
	operator := []string{RoleOperator}
	return []route{
		{
			method: http.MethodGet, path: "/api/v1/agents", name: "list_agents", handle: g.listAgents, roles: operator,
			summary: "Every agent's identity", out: typeOf[struct {
				Agents []client.Agent `json:"agents"`
			}](),
		},
		{
			method: http.MethodPost, path: "/api/v1/agents", name: "create_agent", handle: g.createAgent, roles: operator,
			summary: "Make an identity; its token is shown this once", status: http.StatusCreated,
			in: []field{
				{name: "slug", kind: "string", about: "[a-z0-9][a-z0-9-]{0,39}", required: true},
				{name: "role", kind: "string", about: "developer, qa, documenter, choreographer, operator", required: true},
			},
			out:      typeOf[client.NewAgent](),
			failures: []int{http.StatusConflict, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge},
		},
		{
			method: http.MethodPost, path: "/api/v1/agents/{slug}/token", name: "renew_token", handle: g.renewToken, roles: operator,
			summary: "Replace an agent's token; the old one is worth nothing any more, and a revoked agent is valid again", out: typeOf[client.NewAgent](),
			failures: []int{http.StatusNotFound},
		},
		{
			method: http.MethodDelete, path: "/api/v1/agents/{slug}", name: "revoke_agent", handle: g.revokeAgent, roles: operator,
			summary: "Take an agent's token away, and its sandbox; a new token makes it valid again", status: http.StatusNoContent, failures: []int{http.StatusNotFound},
		},
		{
			method: http.MethodGet, path: "/api/v1/sandboxes", name: "list_sandboxes", handle: g.listSandboxes, roles: operator,
			summary: "What lives, without credentials", out: typeOf[struct {
				Sandboxes []client.SandboxSummary `json:"sandboxes"`
			}](),
		},
		{
			method: http.MethodDelete, path: "/api/v1/sandboxes/{agent}", name: "remove_sandbox", handle: g.removeSandbox, roles: operator,
			summary: "Ask for the removal of an agent's sandbox: its credentials are gone with the answer, its containers soon after; its engagement stays", status: http.StatusNoContent,
			failures: []int{http.StatusNotFound, http.StatusUnprocessableEntity},
		},
		{
			method: http.MethodGet, path: "/api/v1/requests", name: "list_requests", handle: g.listRequests, roles: operator,
			summary: "The request history, newest first", out: typeOf[client.HistoryPage](),
			query: []param{
				{"agent", "query", "string", "of this agent"},
				{"project", "query", "string", "of this project"},
				{"task_id", "query", "string", "of this task"},
				{"outcome", "query", "string", "ok, refused, failed, stale, late, exhausted"},
				{"before", "query", "string", "the next_before of the page before"},
				{"limit", "query", "integer", "1 to 500; 50"},
			},
			failures: []int{http.StatusUnprocessableEntity},
		},
		{
			method: http.MethodGet, path: "/api/v1/flags/" + events.SwitchFlag, name: "get_flag", handle: g.getFlag, roles: operator,
			summary: "The master switch", out: typeOf[client.Flag](),
		},
		{
			method: http.MethodPut, path: "/api/v1/flags/" + events.SwitchFlag, name: "put_flag", handle: g.putFlag, roles: operator,
			summary: "Set the master switch at run time; null leaves it to the environment again", out: typeOf[client.Flag](),
			in:       []field{{name: "value", kind: "boolean", about: "true, false or null", required: true, null: true}},
			failures: []int{http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge},
		},
	}
}

// openRoutes are the probes, the descriptions and MCP (which needs a token).
func (g *Gateway) openRoutes() []route {
	return []route{
		{
			method: http.MethodPost, path: "/mcp", name: "mcp", handle: g.serveMCP,
			summary:  "MCP over streamable HTTP: the tool request_sandbox",
			in:       []field{{name: "jsonrpc", kind: "string", about: "2.0", required: true}},
			failures: []int{http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusRequestEntityTooLarge},
		},
		{method: http.MethodGet, path: "/healthz", name: "healthz", handle: g.healthz, open: true, summary: "Whether the process serves", out: typeOf[map[string]string]()},
		{
			method: http.MethodGet, path: "/readyz", name: "readyz", handle: g.readyz, open: true, summary: "Whether Redis and Postgres answer, and how many workers there are",
			out: typeOf[client.Health](),
		},
		{method: http.MethodGet, path: "/metrics", name: "metrics", handle: g.serveMetrics, open: true, summary: "Prometheus metrics", media: "text/plain"},
		{method: http.MethodGet, path: "/openapi.json", name: "openapi", handle: g.serveOpenAPI, open: true, summary: "This description", out: typeOf[map[string]any]()},
		{method: http.MethodGet, path: "/", name: "index", handle: g.index, open: true, summary: "What there is", out: typeOf[map[string]any]()},
	}
}

// dispatch makes one handler of all routes. What no route has is answered with an envelope too.
func (g *Gateway) dispatch(routes []route) http.Handler {
	byPath := map[string]map[string]http.Handler{}
	for _, rt := range routes {
		if byPath[rt.path] == nil {
			byPath[rt.path] = map[string]http.Handler{}
		}
		byPath[rt.path][rt.method] = g.serve(rt)
	}
	mux := http.NewServeMux()
	for path, methods := range byPath {
		var names []string
		for m := range methods {
			names = append(names, m)
		}
		sort.Strings(names)
		allow := strings.Join(names, ", ")
		other := g.serve(route{name: "not_allowed", open: true, handle: func(w http.ResponseWriter, r *http.Request, _ *call) error {
			if path == "/" && r.URL.Path != "/" {
				return notFound("the path "+clip(r.URL.Path), "GET / lists every path there is.")
			}
			w.Header().Set("Allow", allow)
			return &problem{
				status: http.StatusMethodNotAllowed, code: client.CodeNotAllowed,
				message: r.URL.Path + " does not take " + clip(r.Method), remediate: "Allowed: " + allow + ".",
			}
		}})
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			h, ok := methods[r.Method]
			if r.Method == http.MethodHead {
				h, ok = methods[http.MethodGet]
			}
			if !ok {
				h = other
			}
			h.ServeHTTP(w, r)
		})
	}
	return mux
}
