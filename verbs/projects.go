package verbs

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/state"
)

func wireProject(p state.Project) client.Project {
	return client.Project{
		Slug: p.Slug, Name: p.Name, Services: p.Services, Extensions: p.Extensions, CreatedAt: p.CreatedAt, UpdatedAt: p.UpdatedAt,
	}
}

// listProjects answers GET /api/v1/projects.
func (g *Gateway) listProjects(w http.ResponseWriter, r *http.Request, _ *call) error {
	all, err := g.cfg.Store.Projects(r.Context())
	if err != nil {
		return fmt.Errorf("list projects: %w", err)
	}
	out := make([]client.Project, len(all))
	for i, p := range all {
		out[i] = wireProject(p)
	}
	writeJSON(w, http.StatusOK, map[string]any{"projects": out})
	return nil
}

// getProject answers GET /api/v1/projects/{slug}.
func (g *Gateway) getProject(w http.ResponseWriter, r *http.Request, _ *call) error {
	p, err := g.cfg.Store.Project(r.Context(), r.PathValue("slug"))
	if err != nil {
		return fmt.Errorf("read the project: %w", err)
	}
	writeJSON(w, http.StatusOK, wireProject(p))
	return nil
}

// projectFields reads what a body says of a project: absent and null are told apart. whole: it is all that the project is
// to be, and must be there, for an empty project is more likely a body that was forgotten.
func projectFields(r *http.Request, slug string, whole bool) (state.ProjectPatch, error) {
	names := []string{"slug", "name", "sandbox_services", "sandbox_extensions"}
	raw, err := body(r)
	if err != nil {
		return state.ProjectPatch{}, err
	}
	if whole && len(bytes.TrimSpace(raw)) == 0 {
		return state.ProjectPatch{}, &client.InputError{Problem: "the body is missing: PUT says all that the project is to be", Allowed: names}
	}
	in, err := client.ParseFields(raw, names...)
	if err != nil {
		return state.ProjectPatch{}, err
	}
	named, err := in.String("slug")
	if err != nil {
		return state.ProjectPatch{}, err
	}
	if named != "" && named != slug {
		return state.ProjectPatch{}, &client.InputError{Field: "slug", Problem: "a project's slug is that of the path, and cannot be changed"}
	}
	p := state.ProjectPatch{SetServices: in.Has("sandbox_services"), SetExtensions: in.Has("sandbox_extensions")}
	if in.Has("name") {
		if in.Null("name") {
			return p, &client.InputError{Field: "name", Problem: "it must be a string, not null"}
		}
		name, err := in.String("name")
		if err != nil {
			return p, err
		}
		p.Name = &name
	}
	if p.Services, err = in.Strings("sandbox_services"); err != nil {
		return p, err
	}
	p.Extensions, err = in.StringLists("sandbox_extensions")
	return p, err
}

// putProject answers PUT /api/v1/projects/{slug}: what is left out is null.
func (g *Gateway) putProject(w http.ResponseWriter, r *http.Request, _ *call) error {
	p := state.Project{Slug: r.PathValue("slug")}
	in, err := projectFields(r, p.Slug, true)
	if err != nil {
		return err
	}
	if in.Name != nil {
		p.Name = *in.Name
	}
	p.Services, p.Extensions = in.Services, in.Extensions
	stored, created, err := g.cfg.Store.PutProject(r.Context(), p)
	if err != nil {
		return fmt.Errorf("store the project: %w", err)
	}
	g.announceProject(r.Context(), p.Slug)
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	writeJSON(w, status, wireProject(stored))
	return nil
}

// patchProject answers PATCH /api/v1/projects/{slug}: what is left out stays, null is a value.
func (g *Gateway) patchProject(w http.ResponseWriter, r *http.Request, _ *call) error {
	slug := r.PathValue("slug")
	in, err := projectFields(r, slug, false)
	if err != nil {
		return err
	}
	stored, err := g.cfg.Store.PatchProject(r.Context(), slug, in)
	if err != nil {
		return fmt.Errorf("change the project: %w", err)
	}
	g.announceProject(r.Context(), slug)
	writeJSON(w, http.StatusOK, wireProject(stored))
	return nil
}

// deleteProject answers DELETE /api/v1/projects/{slug}.
func (g *Gateway) deleteProject(w http.ResponseWriter, r *http.Request, _ *call) error {
	if err := g.cfg.Store.DeleteProject(r.Context(), r.PathValue("slug")); err != nil {
		return fmt.Errorf("delete the project: %w", err)
	}
	g.announceProject(r.Context(), r.PathValue("slug"))
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// announceWithin limits an announcement: whoever changed a project does not wait longer for a Redis that is away.
const announceWithin = time.Second

// announceProject tells the workers of a project that was written or deleted. A failure changes nothing for the caller: the
// store is the truth, and workers look there again by themselves.
func (g *Gateway) announceProject(ctx context.Context, slug string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), announceWithin)
	defer cancel()
	if err := g.cfg.Bus.AnnounceProject(ctx, slug); err != nil {
		g.cfg.Log.Warn().Err(err).Str("project", slug).Msg("the workers were not told of a project's change; they look again at their next tick")
	}
}
