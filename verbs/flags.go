package verbs

import (
	"fmt"
	"net/http"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/events"
)

// switchName is the master switch's, in the store and in the path.
const switchName = "sandbox_db_enabled"

// mirrored is a stored value as Redis holds it.
func mirrored(value *bool) events.Switch {
	switch {
	case value == nil:
		return events.SwitchUnset
	case *value:
		return events.SwitchOn
	default:
		return events.SwitchOff
	}
}

func (g *Gateway) wireFlag(value *bool) client.Flag {
	return client.Flag{Name: switchName, Value: value, Effective: (value != nil && *value) || (value == nil && g.cfg.Enabled)}
}

// getFlag answers GET /api/v1/flags/sandbox_db_enabled.
func (g *Gateway) getFlag(w http.ResponseWriter, r *http.Request, _ *call) error {
	value, err := g.cfg.Store.Flag(r.Context(), switchName)
	if err != nil {
		return fmt.Errorf("read the switch: %w", err)
	}
	writeJSON(w, http.StatusOK, g.wireFlag(value))
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
	if err := g.cfg.Store.SetFlag(r.Context(), switchName, value); err != nil {
		return fmt.Errorf("store the switch: %w", err)
	}
	if err := g.cfg.Bus.SetMasterSwitch(r.Context(), mirrored(value)); err != nil {
		return fmt.Errorf("the switch is stored, and takes effect when Redis is back: %w", err)
	}
	writeJSON(w, http.StatusOK, g.wireFlag(value))
	return nil
}
