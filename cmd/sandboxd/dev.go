package main

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/state"
	"github.com/roboco/sandboxd/verbs"
	"github.com/roboco/sandboxd/worker"
	"github.com/roboco/sandboxd/worker/docker"
)

// devFlags are what `sandboxd dev` is told on the command line.
type devFlags struct {
	file      string // YAML with projects and agents
	plan      seed   // what it says
	tokenFile string // where to write the tokens
}

func (p program) devCommand() *cobra.Command {
	var f devFlags
	cmd := &cobra.Command{
		Use: "dev", Short: "Everything in one process, for one machine; needs Docker only", Args: cobra.NoArgs,
		Long: `Runs a worker and a gateway in one process with a bus and a store of its own, both in memory: nothing but Docker is needed,
and nothing is kept. It makes a demo project and a developer agent that works on it (or what --file says), prints how to
call it, and removes every sandbox it made when it ends.

The agents are on this host: ROBOCO_SANDBOX_PUBLISH is loopback, ROBOCO_SANDBOX_OWNER is lease and the master switch is on,
unless they are set. ROBOCO_SANDBOX_CELL and ROBOCO_SANDBOX_NETWORK are its own, named for the port it listens on, so that
no other system's containers are touched. ROBOCO_REDIS_URL and ROBOCO_DATABASE_URL are neither read nor checked.

A --file holds:
  projects:
    - slug: shop
      name: The shop
      sandbox_services: [postgres, redis]
      sandbox_extensions: {postgres: [vector]}
  agents:
    - slug: be-dev-1
      role: developer
      project: shop   # the agent works on this project from the start
      task: T-1`,
		RunE: func(cmd *cobra.Command, args []string) error { return p.runDev(cmd, args, f) },
	}
	cmd.Flags().StringVar(&f.file, "file", "", "projects and agents, as YAML; without it a demo project and a developer")
	cmd.Flags().StringVar(&f.tokenFile, "token-file", "", "write the address and the tokens there, for a shell to source, instead of printing them")
	return cmd
}

// runDev reads the configuration with dev's own defaults; the port comes first, for cell and network are named for it. The
// stores' addresses are not looked at: they may be another system's.
func (p program) runDev(cmd *cobra.Command, args []string, f devFlags) error {
	ctx := cmd.Context()
	var err error
	if f.plan, err = readSeed(f.file); err != nil {
		return &failure{err}
	}
	p.environ = slices.DeleteFunc(slices.Clone(p.environ), func(kv string) bool {
		return strings.HasPrefix(kv, "ROBOCO_REDIS_") || strings.HasPrefix(kv, "ROBOCO_DATABASE_URL=")
	})
	first, err := loadConfig(p.environ)
	if err != nil {
		return err
	}
	if first.TLSCert != "" {
		return &settingError{"ROBOCO_SANDBOX_TLS_CERT", "dev serves one machine over plain HTTP: unset it"}
	}
	l, err := listen(ctx, first.Listen, "ROBOCO_SANDBOX_LISTEN")
	if err != nil {
		return &failure{err}
	}
	defer func() { _ = l.Close() }()
	p.environ = withDefaults(p.environ, devDefaults(port(l)))
	return p.work(func(ctx context.Context, cfg config, log zerolog.Logger) error {
		return p.dev(ctx, cfg, log, l, f)
	})(cmd, args)
}

// devDefaults are what dev has where the environment is silent.
func devDefaults(port int) map[string]string {
	own := fmt.Sprintf("dev-%d", port)
	return map[string]string{
		"ROBOCO_SANDBOX_DB_ENABLED": "true",
		"ROBOCO_SANDBOX_PUBLISH":    publishLoopback,
		"ROBOCO_SANDBOX_OWNER":      ownerLease,
		"ROBOCO_SANDBOX_CELL":       own,
		"ROBOCO_SANDBOX_NETWORK":    "sandboxd-" + own,
		"ROBOCO_SANDBOX_LOG_LEVEL":  "warn",
		"ROBOCO_SANDBOX_LOG_FORMAT": formatConsole,
	}
}

func port(l net.Listener) int {
	if a, ok := l.Addr().(*net.TCPAddr); ok {
		return a.Port
	}
	return 0
}

// dev is the whole system in one process, until ctx ends. Then nothing of it is left.
func (p program) dev(ctx context.Context, cfg config, log zerolog.Logger, l net.Listener, f devFlags) error {
	plan := f.plan
	if f.file == "" {
		plan = demoSeed(port(l))
	}
	if cfg.OperatorToken == "" {
		cfg.OperatorToken = newToken()
	}
	runtime, err := p.openDocker(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer func() { _ = runtime.Close() }()
	if err := sweep(ctx, runtime, cfg); err != nil { // what a run before this one left when it was killed
		return err
	}
	defer func() {
		if err := sweep(context.WithoutCancel(ctx), runtime, cfg); err != nil {
			log.Error().Err(err).Msg("some of what was made is left")
		}
	}()
	store := state.NewMemory(catalog(cfg.registry()))
	defer store.Close()
	tokens, err := plan.store(ctx, store)
	if err != nil {
		return err
	}
	tokens.Operator = cfg.OperatorToken
	tokens.URL = fmt.Sprintf("http://%s", l.Addr())
	bus, closeBus, err := embeddedBus(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer closeBus()
	return p.devProcess(ctx, cfg, log, devParts{l, runtime, bus, store, plan, tokens, f.tokenFile})
}

// devParts is what dev is made of.
type devParts struct {
	l         net.Listener
	runtime   *docker.Runtime
	bus       *events.Bus
	store     state.Store
	plan      seed
	tokens    devTokens
	tokenFile string
}

// devProcess runs worker and gateway, begins the agents' work and says how to go on, until ctx ends.
func (p program) devProcess(ctx context.Context, cfg config, log zerolog.Logger, d devParts) error {
	metrics := prometheus.NewRegistry()
	w := worker.New(cfg.worker(d.bus, d.store, d.runtime, metrics, log))
	conf := cfg.gateway(d.bus, d.store, metrics, log)
	conf.Workers = func(context.Context) (int, error) { return 1, nil } // it ends with this process
	gateway, err := verbs.New(conf)
	if err != nil {
		return fmt.Errorf("gateway: %w", err)
	}
	group, gctx := errgroup.WithContext(ctx)
	group.Go(func() error { return w.Run(gctx) })
	group.Go(func() error { return serveGateway(gctx, cfg, gateway, d.l) })
	group.Go(func() error {
		c, err := client.New(client.Config{URL: d.tokens.URL, Token: d.tokens.Choreographer})
		if err != nil {
			return fmt.Errorf("call myself: %w", err)
		}
		if err := d.plan.startWork(gctx, c); err != nil {
			return err
		}
		return p.introduce(d, cfg)
	})
	err = group.Wait()
	if d.tokenFile != "" {
		removeSecret(d.tokenFile, d.tokens.script(d.plan))
	}
	return firstOf(err)
}

// embeddedBus is a bus over a Redis inside this process, whose clock is the machine's.
func embeddedBus(ctx context.Context, cfg config, log zerolog.Logger) (*events.Bus, func(), error) {
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true)
	if err := server.Start(); err != nil {
		return nil, nil, fmt.Errorf("start the embedded bus: %w", err)
	}
	calls, blocking, err := events.Open("redis://" + server.Addr())
	if err != nil {
		server.Close()
		return nil, nil, fmt.Errorf("start the embedded bus: %w", err)
	}
	closeAll := func() { _ = calls.Close(); _ = blocking.Close(); server.Close() }
	bus := events.New(calls, blocking, cfg.bus(log))
	if _, err := bus.Check(ctx); err != nil {
		closeAll()
		return nil, nil, fmt.Errorf("start the embedded bus: %w", err)
	}
	return bus, closeAll, nil
}

// sweepWithin limits the removal of everything that dev made.
const sweepWithin = time.Minute

// sweep removes every container of the cell, and the network where it is dev's own and nothing is on it.
func sweep(ctx context.Context, rt *docker.Runtime, cfg config) error {
	ctx, cancel := context.WithTimeout(ctx, sweepWithin)
	defer cancel()
	all, err := rt.List(ctx, map[string]string{"roboco.sandbox": "1", "roboco.sandbox.cell": cfg.Cell})
	if err != nil {
		return fmt.Errorf("list the containers of cell %s: %w", cfg.Cell, err)
	}
	var group errgroup.Group
	for _, c := range all {
		group.Go(func() error { return rt.Remove(ctx, c.ID, 0) })
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("remove the containers of cell %s: %w", cfg.Cell, err)
	}
	if cfg.Network != "sandboxd-"+cfg.Cell {
		return nil // it was named by the user
	}
	if err := rt.RemoveNetwork(ctx, cfg.Network); err != nil {
		return fmt.Errorf("remove network %s: %w", cfg.Network, err)
	}
	return nil
}
