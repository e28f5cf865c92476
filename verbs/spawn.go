package verbs

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/state"
)

// markerEnv tells an agent which services it may ask for; never credentials.
const markerEnv = "ROBOCO_SANDBOX_SERVICES_AVAILABLE"

// spawnPatience is how long a look-up may hold an agent's start up.
const spawnPatience = 2 * time.Second

// spawn answers GET /api/v1/projects/{slug}/spawn, always with 200: whatever is wrong, the agent starts, without a
// sandbox to ask for. Nothing is provisioned.
func (g *Gateway) spawn(w http.ResponseWriter, r *http.Request, c *call) error {
	ctx, cancel := context.WithTimeout(r.Context(), spawnPatience)
	defer cancel()
	out := client.Spawn{Services: []string{}, Env: map[string]string{}}
	if services := g.available(ctx, r.PathValue("slug"), c); len(services) > 0 {
		list := strings.Join(services, ",")
		out.Services = services
		out.Env[markerEnv] = list
		out.Briefing = nullable("You can have your own throwaway databases (" + strings.Join(services, ", ") +
			"): call request_sandbox() when you need them.")
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// available lists what a project is opted into; with the switch off nothing is looked up.
func (g *Gateway) available(ctx context.Context, slug string, c *call) []string {
	if !g.switchedOn(ctx) || !state.ValidSlug(slug) {
		return nil
	}
	p, err := g.cfg.Store.Project(ctx, slug)
	if err != nil {
		g.cfg.Log.Warn().Err(err).Str("project", slug).Str("correlation_id", c.correlationID).
			Msg("an agent starts without a sandbox to ask for")
		return nil
	}
	return p.Services
}

// switchedOn reads the master switch where requests read it: its mirror in Redis. Only a mirror that is missing is
// looked up in the store and written back; where neither answers the environment's value counts.
func (g *Gateway) switchedOn(ctx context.Context) bool {
	v, err := g.cfg.Bus.MasterSwitch(ctx)
	if err != nil {
		return g.cfg.Enabled
	}
	if v == events.SwitchMissing {
		f, err := g.cfg.Store.Flag(ctx, events.SwitchFlag)
		if err != nil {
			return g.cfg.Enabled
		}
		if v, err = g.cfg.Bus.MirrorSwitch(ctx, f.Value, f.Revision); err != nil {
			g.cfg.Log.Warn().Err(err).Msg("the master switch could not be mirrored")
			return g.wireFlag(f.Value).Effective
		}
	}
	return v == events.SwitchOn || (v == events.SwitchUnset && g.cfg.Enabled)
}
