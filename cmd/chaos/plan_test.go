package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/worker/workertest"
)

func TestPlan(t *testing.T) {
	t.Parallel()
	o, runs, err := parse([]string{"-seed", "7", "-mode", "flush"})
	require.NoError(t, err)
	require.Equal(t, 1, runs)
	all := plan(o, timesOf(o.Engine))
	require.Equal(t, digest(all), digest(plan(o, timesOf(o.Engine))), "a seed reproduces its schedule")
	require.GreaterOrEqual(t, len(all), 2000, "ten minutes have at least so many")

	kinds := map[kind]int{}
	for i, f := range all {
		kinds[f.Kind]++
		require.Less(t, f.At, o.Duration)
		if i > 0 {
			require.GreaterOrEqual(t, f.At, all[i-1].At)
		}
		if f.Kind == workerStopped {
			require.Greater(t, f.For, timesOf(o.Engine).Lease, "a stop outlasts a lease")
		}
	}
	for _, c := range chances(o, timesOf(o.Engine)) {
		require.Positive(t, kinds[c.kind], c.kind)
	}

	shorter := o
	shorter.Duration = time.Minute
	part := plan(shorter, timesOf(o.Engine))
	require.Equal(t, digest(all[:len(part)]), digest(part), "a shorter run has the beginning of the same schedule")
	o.Seed++
	require.NotEqual(t, digest(all), digest(plan(o, timesOf(o.Engine))))
}

func TestPlanModes(t *testing.T) {
	t.Parallel()
	o, _, err := parse([]string{"-seed", "7", "-engine", "real", "-mode", "kill"})
	require.NoError(t, err)
	all := plan(o, timesOf(o.Engine))
	require.GreaterOrEqual(t, len(all), 200)
	for _, f := range all {
		require.NotEqual(t, redisFlushed, f.Kind, "FLUSHALL is a mode of its own")
		require.NotEqual(t, imageReplaced, f.Kind, "the images are not the run's")
	}
	o.Pool = ""
	for _, f := range plan(o, timesOf(o.Engine)) {
		require.NotEqual(t, idleDied, f.Kind, "nothing waits")
	}
	o.Mode = workertest.Calm
	require.Empty(t, plan(o, timesOf(o.Engine)))
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-mode", "x"}, {"-engine", "x"}, {"-agents", "-1"}, {"-duration", "1ms"}, {"-pool", "redis"}, {"-pool", "redis=-1"}, {"-nonsense"}} {
		_, _, err := parse(args)
		require.Error(t, err, "%v", args)
	}
}
