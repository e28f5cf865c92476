package verbs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"golang.org/x/sync/errgroup"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/state"
)

// Config of a Gateway. Zero fields have the defaults given.
type Config struct {
	Bus     *events.Bus      // required
	Store   state.Store      // required
	Engines engines.Registry // required
	Roles   Roles            // which roles carry which verb; DefaultRoles()

	// OperatorToken is an operator's bearer token that is no agent's; empty for none.
	OperatorToken string
	Rate          float64       // calls a second and agent, in bursts of twice that; 0 = no limit
	TokenCacheTTL time.Duration // a verified token is believed this long, and fifteen times that while the store is down; 60 s
	Enabled       bool          // the environment's master switch; the run-time value wins

	RequestLimit  time.Duration // of one request_sandbox; 1080 s
	AcceptTimeout time.Duration // the bus's: a request that nobody accepted by then is refused; 10 s
	LogsTimeout   time.Duration // for a worker to read logs; 10 s
	BodyWithin    time.Duration // a request's body must have arrived by then, whoever sends it; 30 s
	KeepAlive     time.Duration // between comments on a quiet event stream; 15 s
	ProgressEvery time.Duration // MCP progress is notified at least this often; 5 s
	MaxBody       int64         // bytes of a request's body; 64 KiB
	Memory        int64         // bytes: the limit of each container, as the workers are configured; 512 MiB

	// Workers counts the workers that live; Bus.Workers.
	Workers func(context.Context) (int, error)

	GatewayName string // of this process's inbox, unique per process life; random
	Version     string // of this program; "dev"
	Log         zerolog.Logger
	Register    *prometheus.Registry // served at /metrics; a new one
	Traces      trace.TracerProvider // spans of calls; none
}

// withDefaults fills in what is zero.
func (c Config) withDefaults() Config {
	if c.Roles == nil {
		c.Roles = DefaultRoles()
	}
	if c.Workers == nil {
		c.Workers = c.Bus.Workers
	}
	if c.GatewayName == "" {
		c.GatewayName = "gateway-" + uuid.NewString()
	}
	if c.Version == "" {
		c.Version = "dev"
	}
	if c.Register == nil {
		c.Register = prometheus.NewRegistry()
	}
	if c.Traces == nil {
		c.Traces = noop.NewTracerProvider()
	}
	if c.MaxBody <= 0 {
		c.MaxBody = 64 << 10
	}
	if c.Memory <= 0 {
		c.Memory = 512 << 20
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&c.TokenCacheTTL, time.Minute},
		{&c.RequestLimit, client.RequestLimit},
		{&c.AcceptTimeout, 10 * time.Second},
		{&c.LogsTimeout, 10 * time.Second},
		{&c.BodyWithin, 30 * time.Second},
		{&c.KeepAlive, 15 * time.Second},
		{&c.ProgressEvery, 5 * time.Second},
	} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	return c
}

// Gateway answers every call. It is safe for concurrent use, and any number of them may share one bus and store.
type Gateway struct {
	cfg     Config
	tokens  *tokenCache
	limits  *limiters
	pending *pendingRequests
	metrics *metrics
	tracer  trace.Tracer
	openAPI []byte
	mux     http.Handler
}

// New makes a gateway. Nothing is listened on, and nothing is read before Run.
func New(cfg Config) (*Gateway, error) {
	if cfg.Bus == nil || cfg.Store == nil || len(cfg.Engines) == 0 {
		return nil, errors.New("make a gateway: it needs a bus, a store and engines")
	}
	cfg = cfg.withDefaults()
	g := &Gateway{
		cfg:     cfg,
		tokens:  newTokenCache(cfg.TokenCacheTTL),
		limits:  newLimiters(cfg.Rate),
		pending: newPendingRequests(),
		tracer:  cfg.Traces.Tracer("github.com/roboco/sandboxd/verbs"),
	}
	var err error
	if g.metrics, err = newMetrics(cfg.Register, cfg.Bus); err != nil {
		return nil, fmt.Errorf("make a gateway: %w", err)
	}
	routes := g.routes()
	if g.openAPI, err = openAPI(routes, cfg.Version); err != nil {
		return nil, fmt.Errorf("make a gateway: %w", err)
	}
	g.mux = g.dispatch(routes)
	return g, nil
}

// Handler serves every path. Calls may last as long as RequestLimit: the server should have no write timeout.
func (g *Gateway) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A body that never comes would hold the connection for ever; what waits for a provision takes this off (mayLast).
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(g.cfg.BodyWithin))
		g.mux.ServeHTTP(w, r)
	})
}

// Run reads this gateway's inbox and keeps its caches small, until ctx ends; then it returns nil.
func (g *Gateway) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return g.readInbox(ctx) })
	group.Go(func() error {
		tick := time.NewTicker(time.Minute)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case now := <-tick.C:
				g.tokens.prune(now)
				g.limits.prune(now)
				g.pending.prune(now.Add(-2 * g.cfg.RequestLimit))
			}
		}
	})
	if err := group.Wait(); err != nil {
		return fmt.Errorf("run gateway %s: %w", g.cfg.GatewayName, err)
	}
	return nil
}

// readInbox reads notices of replies for every follower; while Redis is away it tries again.
func (g *Gateway) readInbox(ctx context.Context) error {
	const again = 500 * time.Millisecond
	for {
		err := g.cfg.Bus.RunInbox(ctx, g.cfg.GatewayName)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it was told to stop
		}
		g.cfg.Log.Warn().Err(err).Msg("the inbox cannot be read; trying again")
		if !wait(ctx, again) {
			return nil
		}
	}
}

// wait waits, or reports false when ctx ends first.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
