package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
)

// EndWork calls a work-ending verb (i_am_done, unclaim, i_am_idle, pass_review, fail_review, i_documented). An empty
// task is the engagement's.
func (c *Client) EndWork(ctx context.Context, verb, task string) (*Envelope, error) {
	in := map[string]string{}
	if task != "" {
		in["task_id"] = task
	}
	var env Envelope
	if err := c.call(ctx, http.MethodPost, "/api/v1/do/"+url.PathEscape(verb), in, &env); err != nil {
		return nil, err
	}
	if env.Failed() {
		return nil, &Error{HTTPStatus: http.StatusOK, Envelope: env}
	}
	return &env, nil
}

// Sandbox is the caller's own; a 404 *Error when there is none.
func (c *Client) Sandbox(ctx context.Context) (*Sandbox, error) {
	return get[Sandbox](ctx, c, "/api/v1/sandbox")
}

// Logs are the last lines of an engine's log: the caller's own, or for an operator any agent's.
func (c *Client) Logs(ctx context.Context, f LogsFilter) (*Logs, error) {
	path := "/api/v1/sandbox/logs"
	if f.Agent != "" {
		path = "/api/v1/sandboxes/" + url.PathEscape(f.Agent) + "/logs"
	}
	q := url.Values{}
	set(q, "engine", f.Engine)
	if f.Lines > 0 {
		q.Set("lines", strconv.Itoa(f.Lines))
	}
	return get[Logs](ctx, c, withQuery(path, q))
}

// Projects lists every project by slug. Operator.
func (c *Client) Projects(ctx context.Context) ([]Project, error) {
	out, err := get[struct {
		Projects []Project `json:"projects"`
	}](ctx, c, "/api/v1/projects")
	if err != nil {
		return nil, err
	}
	return out.Projects, nil
}

// Project reads one project. Operator.
func (c *Client) Project(ctx context.Context, slug string) (*Project, error) {
	return get[Project](ctx, c, projectPath(slug))
}

// PutProject makes or replaces a project. Operator.
func (c *Client) PutProject(ctx context.Context, p Project) (*Project, error) {
	in := map[string]any{"name": p.Name, "sandbox_services": p.Services, "sandbox_extensions": p.Extensions}
	return send[Project](ctx, c, http.MethodPut, projectPath(p.Slug), in)
}

// PatchProject changes what is set in the patch. Operator.
func (c *Client) PatchProject(ctx context.Context, slug string, patch ProjectPatch) (*Project, error) {
	return send[Project](ctx, c, http.MethodPatch, projectPath(slug), patch)
}

// DeleteProject removes a project. Operator.
func (c *Client) DeleteProject(ctx context.Context, slug string) error {
	return c.call(ctx, http.MethodDelete, projectPath(slug), nil, nil)
}

// Spawn is what an agent of this project is started with. Choreographer or operator.
func (c *Client) Spawn(ctx context.Context, slug string) (*Spawn, error) {
	return get[Spawn](ctx, c, projectPath(slug)+"/spawn")
}

// Agents lists every identity by slug. Operator.
func (c *Client) Agents(ctx context.Context) ([]Agent, error) {
	out, err := get[struct {
		Agents []Agent `json:"agents"`
	}](ctx, c, "/api/v1/agents")
	if err != nil {
		return nil, err
	}
	return out.Agents, nil
}

// CreateAgent makes an identity and gives its token, this once. Operator.
func (c *Client) CreateAgent(ctx context.Context, slug, role string) (*NewAgent, error) {
	return send[NewAgent](ctx, c, http.MethodPost, "/api/v1/agents", map[string]string{"slug": slug, "role": role})
}

// NewToken replaces an agent's token; the old one is worth nothing any more. Operator.
func (c *Client) NewToken(ctx context.Context, slug string) (*NewAgent, error) {
	return send[NewAgent](ctx, c, http.MethodPost, "/api/v1/agents/"+url.PathEscape(slug)+"/token", nil)
}

// RevokeAgent takes an agent's token away. Operator.
func (c *Client) RevokeAgent(ctx context.Context, slug string) error {
	return c.call(ctx, http.MethodDelete, "/api/v1/agents/"+url.PathEscape(slug), nil, nil)
}

// Engines describes the registry.
func (c *Client) Engines(ctx context.Context) ([]EngineDescription, error) {
	out, err := get[struct {
		Engines []EngineDescription `json:"engines"`
	}](ctx, c, "/api/v1/engines")
	if err != nil {
		return nil, err
	}
	return out.Engines, nil
}

// Verbs is the manifest of verbs and roles, with the caller's own identity.
func (c *Client) Verbs(ctx context.Context) (*Manifest, error) {
	return get[Manifest](ctx, c, "/api/v1/verbs")
}

// Sandboxes lists what lives. Operator.
func (c *Client) Sandboxes(ctx context.Context) ([]SandboxSummary, error) {
	out, err := get[struct {
		Sandboxes []SandboxSummary `json:"sandboxes"`
	}](ctx, c, "/api/v1/sandboxes")
	if err != nil {
		return nil, err
	}
	return out.Sandboxes, nil
}

// RemoveSandbox removes an agent's sandbox; its engagement stays. Operator.
func (c *Client) RemoveSandbox(ctx context.Context, agent string) error {
	return c.call(ctx, http.MethodDelete, "/api/v1/sandboxes/"+url.PathEscape(agent), nil, nil)
}

// Requests reads one page of the history, newest first. Operator.
func (c *Client) Requests(ctx context.Context, f HistoryFilter) (*HistoryPage, error) {
	q := url.Values{}
	set(q, "agent", f.Agent)
	set(q, "project", f.Project)
	set(q, "task_id", f.TaskID)
	set(q, "outcome", f.Outcome)
	set(q, "before", f.Before)
	if f.Limit > 0 {
		q.Set("limit", strconv.Itoa(f.Limit))
	}
	return get[HistoryPage](ctx, c, withQuery("/api/v1/requests", q))
}

// Flag reads the master switch. Operator.
func (c *Client) Flag(ctx context.Context) (*Flag, error) {
	return get[Flag](ctx, c, "/api/v1/flags/sandbox_db_enabled")
}

// SetFlag sets the master switch at run time; nil leaves it to the environment again. Operator.
func (c *Client) SetFlag(ctx context.Context, value *bool) (*Flag, error) {
	return send[Flag](ctx, c, http.MethodPut, "/api/v1/flags/sandbox_db_enabled", map[string]*bool{"value": value})
}

// PublishEvent publishes one event; doing so again with the same ID changes nothing. Choreographer.
func (c *Client) PublishEvent(ctx context.Context, e Event) (*Publication, error) {
	return send[Publication](ctx, c, http.MethodPost, "/api/v1/events", e)
}

// Health is the gateway's readiness; a gateway that is not ready is no error.
func (c *Client) Health(ctx context.Context) (*Health, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	resp, err := c.send(ctx, http.MethodGet, "/readyz", nil, nil)
	if err != nil {
		return nil, err
	}
	defer closeBody(resp)
	if resp.StatusCode == http.StatusServiceUnavailable {
		resp.StatusCode = http.StatusOK
	}
	var h Health
	if err := decode(resp, "GET /readyz", &h); err != nil {
		return nil, err
	}
	return &h, nil
}

func get[T any](ctx context.Context, c *Client, path string) (*T, error) {
	return send[T](ctx, c, http.MethodGet, path, nil)
}

func send[T any](ctx context.Context, c *Client, method, path string, in any) (*T, error) {
	var out T
	if err := c.call(ctx, method, path, in, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

func projectPath(slug string) string { return "/api/v1/projects/" + url.PathEscape(slug) }

func set(q url.Values, key, value string) {
	if value != "" {
		q.Set(key, value)
	}
}

func withQuery(path string, q url.Values) string {
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}
