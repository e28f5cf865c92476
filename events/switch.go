package events

import (
	"context"
	_ "embed"
	"errors"

	"github.com/redis/go-redis/v9"
)

//go:embed mirror.lua
var mirrorLua string

// SwitchFlag is the master switch's name: of its mirror here, and in the durable store.
const SwitchFlag = "sandbox_db_enabled"

// Switch is the mirrored run-time value of the master switch.
type Switch string

// The switch's values.
const (
	SwitchOn      Switch = "1"
	SwitchOff     Switch = "0"
	SwitchUnset   Switch = "-" // none set at run time: the environment's counts
	SwitchMissing Switch = ""  // not mirrored: read the durable store and write it back
)

// MasterSwitch reads the mirror.
func (b *Bus) MasterSwitch(ctx context.Context) (Switch, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	v, err := b.calls.Get(ctx, b.switchKey()).Result()
	if errors.Is(err, redis.Nil) {
		return SwitchMissing, nil
	}
	return Switch(v), failed("read the master switch", err)
}

// MirrorSwitch writes the durable store's value of the switch, nil for none set at run time, as of its revision there. Who
// read the store before an operator changed it comes too late: a lower revision than the mirrored one changes nothing.
// It returns what the mirror says then. Errors of the connection are ErrUnavailable.
func (b *Bus) MirrorSwitch(ctx context.Context, value *bool, revision int64) (Switch, error) {
	v := SwitchUnset
	if value != nil && *value {
		v = SwitchOn
	} else if value != nil {
		v = SwitchOff
	}
	now, err := b.word(ctx, "mirror the master switch", b.scripts.mirror, append(b.keys("", "", ""), b.switchKey(), b.revisionKey()), struct {
		Value    Switch `json:"value"`
		Revision int64  `json:"revision"`
	}{v, revision})
	return Switch(now), err
}
