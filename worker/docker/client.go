package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/docker/docker/api/types/versions"
	"github.com/docker/docker/client"
	"github.com/rs/zerolog"

	"github.com/roboco/sandboxd/engines"
)

// minAPI is the oldest engine API that offers all that is used here (Docker 20.10).
const minAPI = "1.41"

// settleTime is how long a call may go on to its end after its caller has gone.
const settleTime = 10 * time.Second

// Defaults of Config.
const (
	DefaultPullTimeout = 300 * time.Second
	DefaultCallTimeout = 60 * time.Second
	DefaultPulls       = 3
)

// Config says which engine to talk to. The zero value is the local engine at its usual socket.
type Config struct {
	// Host is the engine's address, as in DOCKER_HOST: unix:///path or tcp://host:port. It wins over Context.
	Host string
	// CertPath is a directory with ca.pem, cert.pem and key.pem for a tcp Host; empty means no TLS.
	CertPath string
	// ConfigDir is the Docker CLI's configuration directory (~/.docker); empty means that no context is looked up.
	ConfigDir string
	// Context is the CLI context to use; empty means the current one of ConfigDir.
	Context string
	// PullTimeout limits one pull of one image; 0 means DefaultPullTimeout.
	PullTimeout time.Duration
	// Pulls is how many images are pulled at once; 0 means DefaultPulls.
	Pulls int
	// CallTimeout limits every other call, so that an engine that hangs is an error; 0 means DefaultCallTimeout.
	// Waits (WaitExit, Events) are limited by their context alone.
	CallTimeout time.Duration
	// FixedNetwork: a network that is absent is an error, and none is made.
	FixedNetwork bool
	Log          zerolog.Logger
}

// Runtime is a Docker engine. It is safe for concurrent use.
type Runtime struct {
	cli       *client.Client
	events    *http.Client // of the same transport, without the API client's wrapping
	base      string       // URL prefix for events
	endpoint  endpoint
	log       zerolog.Logger
	call      time.Duration
	logLimits map[string]string // log driver options for every container; nil leaves the engine's

	cpus   int   // of the engine's host
	memory int64 // likewise, bytes

	pullLimit time.Duration
	pullsMax  int
	pullMu    sync.Mutex
	pulls     map[string]*pull // by normalized reference; guarded by pullMu, as is what follows
	pullsNow  int              // that have their turn
	lined     []*pull          // that have not, the next one first
	pulling   sync.WaitGroup
	closing   context.Context //nolint:containedctx // the life of pulls that no caller owns
	close     context.CancelFunc

	fixedNetwork bool
	networkMu    sync.Mutex // one creation at a time in this process
}

// Open connects to the engine and proves that it answers. The error names the socket, and is ErrUnavailable when
// nothing answers there.
func Open(ctx context.Context, cfg Config) (*Runtime, error) {
	ep, err := cfg.endpoint()
	if err != nil {
		return nil, err
	}
	r, err := dial(ep, cfg)
	if err != nil {
		return nil, fmt.Errorf("container engine at %s: %w", ep.host, err)
	}
	if err := r.greet(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// dial builds the clients; nothing is sent.
func dial(ep endpoint, cfg Config) (*Runtime, error) {
	u, err := client.ParseHostURL(ep.host)
	if err != nil {
		return nil, fmt.Errorf("read its address: %w", err)
	}
	// The transport is ours, so that the event feed can share it (see watch.go).
	tr := &http.Transport{MaxIdleConns: 16, MaxIdleConnsPerHost: 16, IdleConnTimeout: 30 * time.Second}
	opts := []client.Opt{
		client.WithHTTPClient(&http.Client{Transport: tr, CheckRedirect: client.CheckRedirect}),
		client.WithHost(ep.host),
		client.WithAPIVersionNegotiation(),
	}
	if ep.ca != "" || ep.cert != "" {
		opts = append(opts, client.WithTLSClientConfig(ep.ca, ep.cert, ep.key))
	}
	cli, err := client.NewClientWithOpts(opts...)
	if err != nil {
		return nil, fmt.Errorf("container engine at %s: %w", ep.host, err)
	}
	r := &Runtime{
		cli: cli, events: &http.Client{Transport: tr}, endpoint: ep, log: cfg.Log,
		call: orDefault(cfg.CallTimeout, DefaultCallTimeout), pullLimit: orDefault(cfg.PullTimeout, DefaultPullTimeout),
		pulls: map[string]*pull{}, pullsMax: cmp.Or(max(cfg.Pulls, 0), DefaultPulls), fixedNetwork: cfg.FixedNetwork,
	}
	r.closing, r.close = context.WithCancel(context.Background())
	switch {
	case u.Scheme == "unix":
		r.base = "http://" + client.DummyHost
	case tr.TLSClientConfig != nil:
		r.base = "https://" + u.Host + u.Path
	default:
		r.base = "http://" + u.Host + u.Path
	}
	return r, nil
}

// greet agrees on an API version, and learns how the engine logs and what its host has.
func (r *Runtime) greet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.call)
	defer cancel()
	ping, err := r.cli.Ping(ctx)
	if err != nil {
		return fmt.Errorf("container engine at %s: %w (is it running, and does DOCKER_HOST name its socket?)", r.endpoint.host, classify(err))
	}
	r.cli.NegotiateAPIVersionPing(ping)
	if v := r.cli.ClientVersion(); versions.LessThan(v, minAPI) {
		return fmt.Errorf("container engine at %s speaks API %s; %s or later is needed (Docker 20.10 has it): bring the engine up to date", r.endpoint.host, v, minAPI)
	}
	info, err := r.info(ctx)
	if err != nil {
		return err
	}
	r.logLimits, r.cpus, r.memory = logLimits(info.LoggingDriver), info.NCPU, info.MemTotal
	return nil
}

// Endpoint is the address of the engine, as in DOCKER_HOST.
func (r *Runtime) Endpoint() string { return r.endpoint.host }

// Ping is nil when the engine answers.
func (r *Runtime) Ping(ctx context.Context) error {
	ctx, cancel := r.limit(ctx)
	defer cancel()
	if _, err := r.cli.Ping(ctx); err != nil {
		return fmt.Errorf("ping the container engine at %s: %w", r.endpoint.host, classify(err))
	}
	return nil
}

// Close ends the pulls under way and gives the connections back. No other method may be called after it.
func (r *Runtime) Close() error {
	r.close()
	r.pulling.Wait()
	r.events.CloseIdleConnections()
	if err := r.cli.Close(); err != nil {
		return fmt.Errorf("close the container engine's connections: %w", err)
	}
	return nil
}

// limit bounds one short call.
func (r *Runtime) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, r.call)
}

// settle is a context for what must be finished even when the caller has gone; from then on it has settleTime left.
func (r *Runtime) settle(ctx context.Context) (context.Context, context.CancelFunc) {
	settled, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.call)
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(settleTime, cancel) })
	return settled, func() {
		stop()
		cancel()
	}
}

func orDefault(d, otherwise time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return otherwise
}

// unavailable says that nothing is known, and why.
func unavailable(cause error) error { return fmt.Errorf("%w: %w", engines.ErrUnavailable, cause) }
