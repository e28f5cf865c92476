package docker_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/worker/docker"
)

// Ten callers want an image that is absent: it is pulled once, all of them are told how far it is, and the first
// one's end is not the others'.
func TestPullIsShared(t *testing.T) {
	b := onDocker(t)
	g := newRegistry(t, nil)
	image := g.ref("present")
	first, leave := context.WithCancel(t.Context())
	const callers = 10
	var told sync.WaitGroup
	told.Add(callers)
	rest := make(chan struct{})
	g.half = func() { // all of them wait by now, as all have been told
		told.Wait()
		leave()
		<-rest
	}
	left := make(chan error, 1)
	var others errgroup.Group
	for i := range callers {
		var once sync.Once
		var last engines.PullProgress
		follow := func(p engines.PullProgress) {
			last = p
			once.Do(told.Done)
		}
		if i == 0 {
			go func() {
				left <- b.EnsureImage(first, image, follow)
				close(rest)
			}()
			continue
		}
		others.Go(func() error {
			if err := b.EnsureImage(t.Context(), image, follow); err != nil {
				return err
			}
			size := int64(len(g.layer))
			if want := (engines.PullProgress{Image: image, Done: size, Total: size}); last != want {
				t.Errorf("the last of caller %d is %+v, not %+v", i, last, want)
			}
			return nil
		})
	}
	err := within(t, left)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, engines.ErrUnavailable)
	require.NoError(t, others.Wait())
	require.EqualValues(t, 1, g.layers.Load())

	asked := g.requests.Load()
	require.NoError(t, b.EnsureImage(t.Context(), image, func(engines.PullProgress) { t.Error("progress of an image that is there") }))
	require.Equal(t, asked, g.requests.Load(), "what is there is not pulled")

	id, err := b.ImageID(t.Context(), image)
	require.NoError(t, err)
	require.Regexp(t, "^sha256:[0-9a-f]{64}$", id)
	_, err = b.ImageID(t.Context(), image+"-not")
	require.ErrorIs(t, err, engines.ErrNotFound)
}

// The engine is asked once, whatever the number of callers and however they write the reference. (That a registry is
// asked for a layer once proves less: the engine itself joins downloads.)
func TestEngineIsAskedOnce(t *testing.T) {
	const callers = 10
	var asked atomic.Int64
	var there atomic.Bool
	var told sync.WaitGroup
	told.Add(callers)
	r := faulty(t, func(w http.ResponseWriter, q *http.Request) {
		switch {
		case strings.HasSuffix(q.URL.Path, "/images/create"):
			asked.Add(1)
			_, _ = w.Write([]byte(`{"status":"Downloading","id":"l","progressDetail":{"current":1,"total":2}}`))
			_ = http.NewResponseController(w).Flush()
			told.Wait()
			there.Store(true)
		case there.Load():
			_, _ = w.Write([]byte(`{}`))
		default:
			http.Error(w, `{"message":"No such image"}`, http.StatusNotFound)
		}
	})
	var all errgroup.Group
	for i := range callers {
		var once sync.Once
		image := []string{"image", "library/image:latest"}[i%2]
		all.Go(func() error {
			return r.EnsureImage(t.Context(), image, func(p engines.PullProgress) {
				if want := (engines.PullProgress{Image: image, Done: 1, Total: 2}); p != want {
					t.Errorf("%+v, not %+v", p, want)
				}
				once.Do(told.Done)
			})
		})
	}
	require.NoError(t, all.Wait())
	require.EqualValues(t, 1, asked.Load())
}

func TestPullRefused(t *testing.T) {
	limited := newRegistry(t, func(w http.ResponseWriter, q *http.Request) bool {
		if q.URL.Path == "/v2/" {
			return false
		}
		refuse(w, http.StatusTooManyRequests, "TOOMANYREQUESTS", "You have reached your pull rate limit")
		return true
	})
	failing := newRegistry(t, func(w http.ResponseWriter, q *http.Request) bool {
		w.WriteHeader(http.StatusBadGateway)
		return true
	})
	denying := newRegistry(t, func(w http.ResponseWriter, q *http.Request) bool {
		if q.URL.Path == "/v2/" {
			return false
		}
		refuse(w, http.StatusForbidden, "DENIED", "requested access to the resource is denied")
		return true
	})
	whole := newRegistry(t, nil)
	b := onDocker(t)
	for name, c := range map[string]struct {
		image     string
		registry  *registry
		retryable bool
		notFound  bool
	}{
		"a pull limit":           {limited.ref("present"), limited, true, false},
		"a registry that fails":  {failing.ref("present"), failing, true, false},
		"a registry that denies": {denying.ref("present"), denying, false, false},
		"no such image":          {whole.ref("absent"), whole, false, true},
		"nobody listens":         {closedPort(t) + "/x/y:1", nil, true, false},
		"not a reference":        {"UPPER//case", nil, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			err := b.EnsureImage(t.Context(), c.image, nil)
			t.Log(err)
			var pe *engines.PullError
			require.ErrorAs(t, err, &pe)
			require.Equal(t, c.image, pe.Image)
			require.Equal(t, c.retryable, pe.Retryable)
			require.ErrorContains(t, err, c.image)
			require.NotErrorIs(t, err, engines.ErrUnavailable, "the engine did answer")
			if c.notFound {
				require.ErrorIs(t, err, engines.ErrNotFound)
			}
			if c.registry != nil {
				require.LessOrEqual(t, c.registry.requests.Load(), int64(12), "no loop")
			}
		})
	}
}

// A registry that accepts connections and says nothing is left at the pull's own limit.
func TestPullHangs(t *testing.T) {
	b := onDocker(t, func(c *docker.Config) { c.PullTimeout = time.Second })
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close() // the kernel accepts for it
	image := l.Addr().String() + "/x/y:1"
	err = b.EnsureImage(t.Context(), image, nil)
	var pe *engines.PullError
	require.ErrorAs(t, err, &pe)
	require.True(t, pe.Retryable)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, engines.ErrUnavailable)
	require.ErrorContains(t, err, image)
	require.ErrorContains(t, err, "1s")
}

// Close ends a pull that hangs, and with it whoever waits.
func TestCloseEndsPulls(t *testing.T) {
	accepted := make(chan struct{})
	var once sync.Once
	r := faulty(t, func(w http.ResponseWriter, q *http.Request) {
		if strings.HasSuffix(q.URL.Path, "/images/create") {
			once.Do(func() { close(accepted) })
			<-q.Context().Done()
			return
		}
		http.Error(w, `{"message":"No such image"}`, http.StatusNotFound)
	})
	ended := make(chan error, 1)
	go func() { ended <- r.EnsureImage(t.Context(), "some/image", nil) }()
	within(t, accepted)
	require.NoError(t, r.Close())
	require.ErrorIs(t, within(t, ended), context.Canceled)
}

// With one turn, three images are pulled one after the other: who waits is told its place, and moves up; a failure hands
// the turn on as well.
func TestPullsStandInLine(t *testing.T) {
	turns := make(chan string)
	release := make(chan struct{})
	var there sync.Map
	var at, most atomic.Int64
	r := faulty(t, func(w http.ResponseWriter, q *http.Request) {
		if strings.HasSuffix(q.URL.Path, "/images/create") {
			name := q.URL.Query().Get("fromImage")
			most.Store(max(most.Load(), at.Add(1)))
			defer at.Add(-1)
			turns <- name
			<-release
			if strings.HasSuffix(name, "first") {
				http.Error(w, `{"message":"boom"}`, http.StatusInternalServerError)
				return
			}
			there.Store(name[strings.LastIndex(name, "/")+1:], true)
			_, _ = w.Write([]byte(`{}`))
			return
		}
		name := strings.TrimSuffix(strings.TrimSuffix(q.URL.Path, "/json"), ":latest")
		if _, ok := there.Load(name[strings.LastIndex(name, "/")+1:]); !ok {
			http.Error(w, `{"message":"No such image"}`, http.StatusNotFound)
			return
		}
		_, _ = w.Write([]byte(`{}`))
	}, func(c *docker.Config) { c.Pulls = 1 })
	type step struct{ image, place string }
	told := make(chan step, 100)
	ended := map[string]chan error{}
	ask := func(image string) {
		ended[image] = make(chan error, 1)
		go func(done chan error) {
			done <- r.EnsureImage(t.Context(), image, func(p engines.PullProgress) { told <- step{image, fmt.Sprint(p.Queued)} })
		}(ended[image])
	}
	ask("first")
	require.Contains(t, within(t, turns), "first")
	ask("second")
	require.Equal(t, step{"second", "1"}, within(t, told))
	ask("third")
	require.Equal(t, step{"third", "2"}, within(t, told))

	release <- struct{}{}
	require.Error(t, within(t, ended["first"]))
	require.Contains(t, within(t, turns), "second")
	require.ElementsMatch(t, []step{{"second", "0"}, {"third", "1"}}, []step{within(t, told), within(t, told)})
	release <- struct{}{}
	require.NoError(t, within(t, ended["second"]))
	require.Contains(t, within(t, turns), "third")
	release <- struct{}{}
	require.NoError(t, within(t, ended["third"]))
	require.EqualValues(t, 1, most.Load())
}

// closedPort is an address at which nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}
