package worker_test

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/engines"
)

// A stranger of our name is named, and spared: one that carries no label of ours, and one that another cell has made for an
// agent of the same name.
func TestStrangerIsSpared(t *testing.T) {
	t.Parallel()
	for name, put := range map[string]func(s *stage, a string) string{
		"nobody's": func(s *stage, a string) string { return s.sim.Stranger("roboco-sandbox-redis-" + a) },
		"another cell's": func(s *stage, a string) string {
			s.request(a)
			was := s.box(a, "redis")
			s.end(a)
			s.eventually(time.Minute, func() bool { return len(s.boxes(a)) == 0 }, "the work has ended")
			labels := maps.Clone(was.Labels)
			labels["roboco.sandbox.cell"] = "other"
			id, err := s.sim.Create(s.t.Context(), engines.Launch{Spec: engines.Spec{Image: was.Image}, Name: was.Name, Labels: labels})
			require.NoError(s.t, err)
			require.NoError(s.t, s.sim.Start(s.t.Context(), id))
			return id
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.with(nil)
			a := s.atWork("redis")
			id := put(s, a)
			s.start(a, "T-2", "p")
			refusal := s.refused(s.ask(a, nil, nil)(), 8)
			require.Contains(t, refusal.Message, "roboco-sandbox-redis-"+a+" is taken by a container that does not belong")
			require.NoError(t, s.pass(nil))
			_, err := s.sim.Inspect(t.Context(), id)
			require.NoError(t, err)
		})
	}
}
