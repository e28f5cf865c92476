package simwire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/worker"
	"github.com/roboco/sandboxd/worker/workertest"
)

// method runs one call on the engine; send is for what comes before the result.
type method func(ctx context.Context, r worker.Runtime, c call, send func(frame)) (frame, error)

// Serve lets clients use the engine until ctx ends, which is no error; calls under way end with it. Where the engine is a
// workertest.Wire too, as a Sim is, its servers can be queried as well. It closes l.
func Serve(ctx context.Context, l net.Listener, r worker.Runtime) error {
	mux := http.NewServeMux()
	for name, m := range methods() {
		mux.HandleFunc("POST /"+name, func(w http.ResponseWriter, q *http.Request) { answer(w, q, r, m) })
	}
	srv := &http.Server{Handler: mux, BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the simulated engine: %w", err)
	}
	return nil
}

func answer(w http.ResponseWriter, q *http.Request, r worker.Runtime, m method) {
	var c call
	if err := json.NewDecoder(q.Body).Decode(&c); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var mu sync.Mutex
	flush := http.NewResponseController(w)
	send := func(f frame) {
		mu.Lock()
		defer mu.Unlock()
		// A caller that has hung up learns nothing; its context ends the call.
		_ = json.NewEncoder(w).Encode(f)
		_ = flush.Flush()
	}
	f, err := m(q.Context(), r, c, send)
	f.Last, f.Failure = true, toFailure(err)
	send(f)
}

// methods are the calls, by the name in their path.
func methods() map[string]method {
	return map[string]method{
		"create": create,
		"start":  plain(func(ctx context.Context, r worker.Runtime, c call) error { return r.Start(ctx, c.ID) }),
		"rename": plain(func(ctx context.Context, r worker.Runtime, c call) error { return r.Rename(ctx, c.ID, c.Name) }),
		"remove": plain(func(ctx context.Context, r worker.Runtime, c call) error { return r.Remove(ctx, c.ID, c.Grace) }),
		"network": plain(func(ctx context.Context, r worker.Runtime, c call) error {
			return r.EnsureNetwork(ctx, c.Name)
		}),
		"ping":    plain(func(ctx context.Context, r worker.Runtime, _ call) error { return r.Ping(ctx) }),
		"query":   plain(query),
		"inspect": inspect,
		"list": list(func(ctx context.Context, r worker.Runtime, c call) ([]engines.Container, error) {
			return r.List(ctx, c.Labels)
		}),
		"named": list(func(ctx context.Context, r worker.Runtime, c call) ([]engines.Container, error) {
			return r.ListNamed(ctx, c.Name)
		}),
		"logs":    text(func(ctx context.Context, r worker.Runtime, c call) (string, error) { return r.Logs(ctx, c.ID, c.Lines) }),
		"host":    text(func(ctx context.Context, r worker.Runtime, _ call) (string, error) { return r.HostID(ctx) }),
		"imageid": text(func(ctx context.Context, r worker.Runtime, c call) (string, error) { return r.ImageID(ctx, c.Name) }),
		"capacity": func(ctx context.Context, r worker.Runtime, _ call, _ func(frame)) (frame, error) {
			c, err := r.Capacity(ctx)
			return frame{Capacity: &c}, err
		},
		"derive":   plain(derive),
		"underive": plain(func(ctx context.Context, r worker.Runtime, c call) error { return r.RemoveDerived(ctx, c.ID) }),
		"derived": func(ctx context.Context, r worker.Runtime, _ call, _ func(frame)) (frame, error) {
			all, err := r.DerivedImages(ctx)
			return frame{Images: all}, err
		},
		"wait":   waitExit,
		"events": feed,
		"image":  image,
	}
}

func plain(do func(context.Context, worker.Runtime, call) error) method {
	return func(ctx context.Context, r worker.Runtime, c call, _ func(frame)) (frame, error) {
		return frame{}, do(ctx, r, c)
	}
}

func text(do func(context.Context, worker.Runtime, call) (string, error)) method {
	return func(ctx context.Context, r worker.Runtime, c call, _ func(frame)) (frame, error) {
		s, err := do(ctx, r, c)
		return frame{Text: s}, err
	}
}

func list(do func(context.Context, worker.Runtime, call) ([]engines.Container, error)) method {
	return func(ctx context.Context, r worker.Runtime, c call, _ func(frame)) (frame, error) {
		all, err := do(ctx, r, c)
		return frame{Containers: all}, err
	}
}

func create(ctx context.Context, r worker.Runtime, c call, _ func(frame)) (frame, error) {
	if c.Launch == nil {
		return frame{}, errors.New("create: no launch was given")
	}
	id, err := r.Create(ctx, *c.Launch)
	return frame{Text: id}, err
}

func derive(ctx context.Context, r worker.Runtime, c call) error {
	if c.Derivation == nil {
		return errors.New("derive: nothing was given")
	}
	return r.Derive(ctx, *c.Derivation)
}

func inspect(ctx context.Context, r worker.Runtime, c call, _ func(frame)) (frame, error) {
	got, err := r.Inspect(ctx, c.ID)
	return frame{Container: &got}, err
}

func waitExit(ctx context.Context, r worker.Runtime, c call, _ func(frame)) (frame, error) {
	code, err := r.WaitExit(ctx, c.ID)
	return frame{Code: code}, err
}

func feed(ctx context.Context, r worker.Runtime, _ call, send func(frame)) (frame, error) {
	return frame{}, r.Events(ctx, func() { send(frame{Connected: true}) }, func(e engines.Event) { send(frame{Event: &e}) })
}

func image(ctx context.Context, r worker.Runtime, c call, send func(frame)) (frame, error) {
	return frame{}, r.EnsureImage(ctx, c.Name, func(p engines.PullProgress) { send(frame{Progress: &p}) })
}

func query(ctx context.Context, r worker.Runtime, c call) error {
	servers, ok := r.(workertest.Wire)
	if !ok || c.Query == nil {
		return errors.New("query: this engine's servers are not simulated")
	}
	return servers.Query(ctx, *c.Query)
}
