package worker_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/worker"
)

// faulty is a container engine whose client has bugs.
type faulty struct {
	worker.Runtime

	images func(image string)             // called before an image is looked for
	lists  func(labels map[string]string) // called before a listing
}

func (f *faulty) EnsureImage(ctx context.Context, image string, progress func(engines.PullProgress)) error {
	f.images(image)
	return f.Runtime.EnsureImage(ctx, image, progress)
}

func (f *faulty) List(ctx context.Context, labels map[string]string) ([]engines.Container, error) {
	f.lists(labels)
	return f.Runtime.List(ctx, labels)
}

// A bug that one event always meets costs that event alone: it becomes a dead letter, its request is answered, and the
// same process serves everybody else. What it left undone is done when the event is put back.
func TestHandlerThatAlwaysPanics(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(r *rig) {
		r.bcfg.Lease, r.bcfg.ClaimIdle, r.bcfg.Attempts = 300*time.Millisecond, 400*time.Millisecond, 3
		r.cfg.Beat = 50 * time.Millisecond
	})
	broken := make(chan struct{}) // closed: the bug in the listing is mended
	odd := r.slug("odd")
	mongo, _ := engines.Builtin().Lookup("mongo")
	rt := &faulty{
		Runtime: r.runtime,
		images: func(image string) {
			if image == mongo.Bare {
				panic("hunter2")
			}
		},
		lists: func(labels map[string]string) {
			select {
			case <-broken:
			default:
				if labels["roboco.sandbox.owner"] == "roboco-agent-"+odd {
					_ = strings.Split(odd, "-")[len(odd)]
				}
			}
		},
	}
	r.worker(func(c *worker.Config) { c.Runtime = rt })
	r.project("shop", []string{"redis"}, nil)
	r.project("docs", []string{"mongo"}, nil)

	r.start(r.slug("mongo"), "T-1", "docs")
	reply := r.ask(r.slug("mongo"), nil, nil)()
	require.Equal(t, events.StateExhausted, reply.State)
	require.NotEmpty(t, reply.Refusal.Message)

	r.start(odd, "T-1", "shop")
	r.request(odd, "redis")
	r.end(odd)
	var all []events.Letter
	r.eventually(time.Minute, func() bool {
		var err error
		all, _, err = r.bus.DeadLetters(t.Context(), "", 10)
		return err == nil && len(all) == 2
	}, "dead letters")
	require.Equal(t, events.WorkEnded, all[0].Event.Type)
	require.Contains(t, all[0].Reason, "index out of range")
	require.Equal(t, events.CausePanicked, all[1].Cause)
	require.NotContains(t, all[1].Reason, "hunter2")
	require.Len(t, r.containers(odd), 1, "the end could not be carried out")

	healthy := r.slug("healthy")
	r.start(healthy, "T-1", "shop")
	r.request(healthy, "redis")

	close(broken)
	_, err := r.bus.RetryLetter(t.Context(), all[0].ID)
	require.NoError(t, err)
	r.eventually(time.Minute, func() bool { return len(r.containers(odd)) == 0 }, "the end that was put back is carried out")
	_, err = r.bus.RetryLetter(t.Context(), all[1].ID)
	require.ErrorContains(t, err, "has its answer already")
	for _, c := range r.containers("") {
		require.True(t, strings.HasSuffix(c.Name, healthy), c.Name)
	}
	r.quiet()
}
