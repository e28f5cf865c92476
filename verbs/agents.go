package verbs

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/state"
)

// tokenBytes is how much chance is in a token.
const tokenBytes = 32

// newToken gives a token and its sum; only the sum is ever stored.
func newToken() (token string, sum []byte) {
	b := make([]byte, tokenBytes)
	_, _ = rand.Read(b) // it never fails: the program would end
	token = hex.EncodeToString(b)
	s := sha256.Sum256([]byte(token))
	return token, s[:]
}

// listAgents answers GET /api/v1/agents.
func (g *Gateway) listAgents(w http.ResponseWriter, r *http.Request, _ *call) error {
	all, err := g.cfg.Store.Agents(r.Context())
	if err != nil {
		return fmt.Errorf("list agents: %w", err)
	}
	out := make([]client.Agent, len(all))
	for i, a := range all {
		out[i] = client.Agent{Slug: a.Slug, Role: a.Role, Revoked: a.Revoked, CreatedAt: a.CreatedAt}
	}
	writeJSON(w, http.StatusOK, map[string]any{"agents": out})
	return nil
}

// createAgent answers POST /api/v1/agents; its token is shown this once.
func (g *Gateway) createAgent(w http.ResponseWriter, r *http.Request, _ *call) error {
	in, err := fields(r, "slug", "role")
	if err != nil {
		return err
	}
	slug, err := in.String("slug")
	if err != nil {
		return err
	}
	role, err := in.String("role")
	if err != nil {
		return err
	}
	if slug == operatorSlug {
		return &client.InputError{Field: "slug", Problem: `"operator" stands for whoever holds the configured operator token`}
	}
	token, sum := newToken()
	agent, err := g.cfg.Store.CreateAgent(r.Context(), slug, role, sum)
	if err != nil {
		return fmt.Errorf("make the agent %s: %w", clip(slug), err)
	}
	writeJSON(w, http.StatusCreated, withToken(agent, token))
	return nil
}

func withToken(a state.Agent, token string) client.NewAgent {
	return client.NewAgent{Slug: a.Slug, Role: a.Role, Token: token}
}

// renewToken answers POST /api/v1/agents/{slug}/token; the old token is worth nothing any more.
func (g *Gateway) renewToken(w http.ResponseWriter, r *http.Request, _ *call) error {
	if _, err := fields(r); err != nil {
		return err
	}
	slug := r.PathValue("slug")
	token, sum := newToken()
	agent, err := g.cfg.Store.SetToken(r.Context(), slug, sum)
	g.tokens.evict(slug) // whatever came of it: what was stored may be stored without an answer
	if err != nil {
		return fmt.Errorf("give the agent %s a new token: %w", clip(slug), err)
	}
	writeJSON(w, http.StatusOK, withToken(agent, token))
	return nil
}

// revokeAgent answers DELETE /api/v1/agents/{slug}: the token is worth nothing any more, and the sandbox goes too. Where
// the second failed the call can be repeated.
func (g *Gateway) revokeAgent(w http.ResponseWriter, r *http.Request, c *call) error {
	slug := r.PathValue("slug")
	err := g.cfg.Store.RevokeAgent(r.Context(), slug)
	g.tokens.evict(slug)
	if err != nil {
		return fmt.Errorf("revoke the agent %s: %w", clip(slug), err)
	}
	known, err := g.cfg.Bus.Agent(r.Context(), slug)
	if err == nil && known.Epoch != "" { // it has had a sandbox, and nobody may use it any more
		err = g.publishRemoval(r.Context(), c, slug, "the agent was revoked")
	}
	if err != nil {
		return fmt.Errorf("the token is revoked, but the sandbox of %s is not asked to go yet: %w", slug, err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
