package verbs

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/roboco/sandboxd/client"
)

// readyPatience is how long a store may take to answer a probe.
const readyPatience = 2 * time.Second

// healthz answers as long as the process serves.
func (g *Gateway) healthz(w http.ResponseWriter, _ *http.Request, _ *call) error {
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok", "version": g.cfg.Version})
	return nil
}

// readyz says whether Redis and Postgres answer: 200, or 503. How many workers there are is told beside: a gateway without
// any answers everything but requests for a sandbox, and one that starts before them is not to be taken out for it.
func (g *Gateway) readyz(w http.ResponseWriter, r *http.Request, _ *call) error {
	ctx, cancel := context.WithTimeout(r.Context(), readyPatience)
	defer cancel()
	var bus, store error
	var workers int
	var unseen error
	var group errgroup.Group
	group.Go(func() error { bus = g.cfg.Bus.Ping(ctx); return nil })
	group.Go(func() error { store = g.cfg.Store.Ping(ctx); return nil })
	group.Go(func() error { workers, unseen = g.cfg.Workers(ctx); return nil })
	_ = group.Wait() // each has its own error
	h := client.Health{Ready: bus == nil && store == nil, Version: g.cfg.Version, Checks: map[string]string{
		"redis": told(bus), "store": told(store), "workers": toldWorkers(workers, unseen),
	}}
	status := http.StatusOK
	if !h.Ready {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, h)
	return nil
}

// told is a check in words. It is seen without a token: what is wrong in detail stands in the log.
func told(err error) string {
	if err == nil {
		return "ok"
	}
	return "does not answer"
}

// toldWorkers is how many workers read the work stream, in words.
func toldWorkers(n int, err error) string {
	switch {
	case err != nil:
		return "not known"
	case n == 0:
		return "none: requests for a sandbox will be refused until one runs"
	default:
		return strconv.Itoa(n)
	}
}

// index says what there is.
func (g *Gateway) index(w http.ResponseWriter, r *http.Request, _ *call) error {
	if r.URL.Path != "/" {
		return notFound("the path "+clip(r.URL.Path), "GET / lists every path there is.")
	}
	type row struct {
		Call string `json:"call"`
		Does string `json:"does"`
	}
	var rows []row
	for _, rt := range g.routes() {
		rows = append(rows, row{Call: rt.method + " " + rt.path, Does: rt.summary})
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"name": "sandboxd", "version": g.cfg.Version, "description": "throwaway databases for coding agents", "calls": rows,
	})
	return nil
}
