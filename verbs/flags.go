package verbs

import (
	"fmt"
	"net/http"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/events"
)

func (g *Gateway) wireFlag(value *bool) client.Flag {
	return client.Flag{Name: events.SwitchFlag, Value: value, Effective: (value != nil && *value) || (value == nil && g.cfg.Enabled)}
}

// getFlag answers GET /api/v1/flags/sandbox_db_enabled.
func (g *Gateway) getFlag(w http.ResponseWriter, r *http.Request, _ *call) error {
	f, err := g.cfg.Store.Flag(r.Context(), events.SwitchFlag)
	if err != nil {
		return fmt.Errorf("read the switch: %w", err)
	}
	writeJSON(w, http.StatusOK, g.wireFlag(f.Value))
	return nil
}

// putFlag answers PUT /api/v1/flags/sandbox_db_enabled: to the store first, then to the mirror that requests read.
func (g *Gateway) putFlag(w http.ResponseWriter, r *http.Request, _ *call) error {
	in, err := fields(r, "value")
	if err != nil {
		return err
	}
	if !in.Has("value") {
		return &client.InputError{Field: "value", Problem: "it is missing", Allowed: []string{"true", "false", "null"}}
	}
	value, err := in.Bool("value")
	if err != nil {
		return err
	}
	f, err := g.cfg.Store.SetFlag(r.Context(), events.SwitchFlag, value)
	if err != nil {
		return fmt.Errorf("store the switch: %w", err)
	}
	if _, err := g.cfg.Bus.MirrorSwitch(r.Context(), f.Value, f.Revision); err != nil {
		return fmt.Errorf("the switch is stored, and takes effect when Redis is back: %w", err)
	}
	writeJSON(w, http.StatusOK, g.wireFlag(f.Value))
	return nil
}
