package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"

	"github.com/roboco/sandboxd/client"
)

// listen opens a listening socket; its error names the variable that says where.
func listen(ctx context.Context, addr, variable string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", variable, err)
	}
	return l, nil
}

// serve answers on l until ctx ends; calls under way may then go on for as long as drain.
func serve(ctx context.Context, l net.Listener, h http.Handler, drain time.Duration) error {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	ended := make(chan struct{})
	stopped := context.AfterFunc(ctx, func() {
		defer close(ended)
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
		defer cancel()
		if srv.Shutdown(limit) != nil {
			_ = srv.Close() // whoever still waits may ask again: nothing is cancelled by that
		}
	})
	err := srv.Serve(l)
	if stopped() { // Serve failed by itself
		return fmt.Errorf("serve HTTP at %s: %w", l.Addr(), err)
	}
	<-ended
	return nil
}

// check is one thing a process cannot work without.
type check struct {
	name string
	ping func(context.Context) error
}

// probes answers /healthz (the process runs), /readyz (what it needs answers) and /metrics.
func probes(checks []check, metrics prometheus.Gatherer, log zerolog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		health := ready(r.Context(), checks, log)
		status := http.StatusOK
		if !health.Ready {
			status = http.StatusServiceUnavailable
		}
		writeJSON(w, status, health)
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	return mux
}

// pingWithin limits all checks of one probe.
const pingWithin = 3 * time.Second

func ready(ctx context.Context, checks []check, log zerolog.Logger) client.Health {
	ctx, cancel := context.WithTimeout(ctx, pingWithin)
	defer cancel()
	health := client.Health{Ready: true, Version: version(), Checks: map[string]string{}}
	for _, c := range checks {
		health.Checks[c.name] = "ok"
		if err := c.ping(ctx); err != nil {
			log.Warn().Err(err).Str("check", c.name).Msg("not ready")
			health.Checks[c.name] = "does not answer"
			health.Ready = false
		}
	}
	return health
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // who has gone away is not told
}

// firstOf is the first error that is not the end of the context.
func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
	return nil
}
