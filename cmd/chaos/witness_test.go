package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/worker/workertest"
)

// What the engine's events say becomes what the checks know: who was removed, who died, and until when it was surely alive.
func TestWitness(t *testing.T) {
	t.Parallel()
	type event struct {
		action string
		at     int64
	}
	for _, c := range []struct {
		name    string
		harness int64 // when the harness began to end it; 0: it did not
		events  []event
		want    workertest.Life
	}{
		{"removed", 0, []event{{"kill", 5}, {"die", 6}, {"destroy", 7}}, workertest.Life{Removed: 5}},
		{"removed at once", 0, []event{{"destroy", 7}}, workertest.Life{Removed: 7}},
		{"died by itself", 0, []event{{"die", 6}}, workertest.Life{Died: 6}},
		{"died by itself, then removed", 0, []event{{"die", 6}, {"destroy", 7}}, workertest.Life{Died: 6, Removed: 7}},
		{"killed by the harness", 4, []event{{"kill", 5}, {"die", 6}}, workertest.Life{Dying: 4, Died: 6}},
		{"restarted by the harness", 4, []event{{"kill", 5}, {"die", 6}, {"start", 7}, {"kill", 8}, {"die", 9}}, workertest.Life{Dying: 4, Died: 6}},
		{"removed by the harness", 4, []event{{"kill", 5}, {"die", 6}, {"destroy", 7}}, workertest.Life{Dying: 4, Died: 6}},
		{"created, and removed by the harness before it ran", 4, []event{{"destroy", 7}}, workertest.Life{Dying: 4, Died: 7}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := &witness{lives: map[string]*workertest.Life{"c": {ID: "c"}}, ours: map[string]int64{}, volumes: map[string]string{}}
			if c.harness != 0 {
				w.ours["c"] = c.harness
			}
			for _, e := range c.events {
				h := happening{Type: "container", Action: e.action, TimeNano: e.at * 1000}
				h.Actor.ID, h.Actor.Attributes = "c", map[string]string{"name": "n"}
				w.note(h)
			}
			c.want.ID, c.want.Name, c.want.Names = "c", "n", []string{"n"}
			require.Equal(t, c.want, w.truth().Lives["c"])
		})
	}
}

func TestWitnessVolumes(t *testing.T) {
	t.Parallel()
	w := &witness{lives: map[string]*workertest.Life{"c": {ID: "c"}}, ours: map[string]int64{}, volumes: map[string]string{}}
	for _, container := range []string{"c", "theirs"} {
		h := happening{Type: "volume", Action: "mount"}
		h.Actor.ID, h.Actor.Attributes = "v-"+container, map[string]string{"container": container}
		w.note(h)
	}
	require.Equal(t, map[string]string{"v-c": "c"}, w.mounted())
}
