package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/worker/docker"
)

// trivial is the image whose containers do nothing: it comes with `make images`.
const trivial = "roboco-sandbox-agent:latest"

// The limits of every container, sandboxd's defaults.
const (
	memoryLimit = 512 << 20
	nanoCPUs    = 1e9
	pidsLimit   = 256
)

// peerLabel is on what the peers make, and cellLabel on everything else; the values have this run's id in them.
const (
	peerLabel = "sandboxd.bench"
	cellLabel = "roboco.sandbox.cell"
)

// bench is one run: what it measures with, and what it has found.
type bench struct {
	options

	id      string
	network string
	runtime *docker.Runtime
	redis   string // host:port of the bus
	rdb     *redis.Client
	http    *http.Client
	found   *findings
	peer    *peerProgram
	places  map[string]*place // by way
	cells   []string          // whose containers are removed at the end
	closers []func() error
}

// open brings up what every part needs.
func (b *bench) open(ctx context.Context) (err error) {
	b.id, b.places = uuid.NewString()[:8], map[string]*place{}
	b.network = "sandboxd-bench-" + b.id
	b.http = &http.Client{Transport: &http.Transport{MaxIdleConns: 256, MaxIdleConnsPerHost: 256}}
	if b.runtime, err = docker.Open(ctx, docker.Config{Host: os.Getenv("DOCKER_HOST"), Log: zerolog.Nop()}); err != nil {
		return fmt.Errorf("container engine: %w", err)
	}
	b.closers = append(b.closers, b.runtime.Close, b.sweep)
	if err := b.runtime.EnsureNetwork(ctx, b.network); err != nil {
		return fmt.Errorf("network: %w", err)
	}
	return b.startRedis(ctx)
}

// close takes everything down, in the reverse order, sandboxes included.
func (b *bench) close() error {
	var errs []error
	for i := len(b.closers) - 1; i >= 0; i-- {
		errs = append(errs, b.closers[i]())
	}
	return errors.Join(errs...)
}

// cell names a cell of this run's, whose containers do not outlive it.
func (b *bench) cell(of string) string {
	name := "bench-" + of + "-" + b.id
	b.cells = append(b.cells, name)
	return name
}

// sweep removes every container that this run, its sandboxes and its peers have made and left, and then the network.
func (b *bench) sweep() error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	labels := []string{peerLabel + "=" + b.id}
	for _, c := range b.cells {
		labels = append(labels, cellLabel+"="+c)
	}
	var errs []error
	for _, label := range labels {
		ids, err := command(ctx, "ps", "-aq", "--no-trunc", "--filter", "label="+label)
		if err == nil && ids != "" {
			_, err = command(ctx, append([]string{"rm", "-f", "-v"}, strings.Fields(ids)...)...)
		}
		errs = append(errs, err)
	}
	_, err := command(ctx, "network", "rm", b.network)
	return errors.Join(append(errs, err)...)
}

// command runs command-line docker, and gives what it prints.
func command(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "docker", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("docker %s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
	}
	return strings.TrimSpace(string(out)), nil
}

// startRedis runs the bus's own Redis as one more container. It is reached at its own address: a published port is served
// by a proxy that would be measured too.
func (b *bench) startRedis(ctx context.Context) error {
	c, err := b.launch(ctx, engines.Launch{
		Spec: engines.Spec{
			Image: "redis:8-alpine", User: "redis", Port: 6379,
			Entrypoint: []string{"redis-server"}, Cmd: []string{"--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction", "--protected-mode", "no"},
		},
		Name: "sandboxd-bench-redis-" + b.id, Labels: map[string]string{cellLabel: b.cell("store")},
	})
	if err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	seen, err := b.runtime.Inspect(ctx, c)
	if err != nil || len(seen.Addrs) == 0 {
		return errors.Join(fmt.Errorf("redis has no address"), err)
	}
	b.redis = seen.Addrs[0]
	b.rdb = redis.NewClient(&redis.Options{Addr: b.redis, MaxRetries: 50, MinRetryBackoff: 50 * time.Millisecond, MaxRetryBackoff: 200 * time.Millisecond})
	b.closers = append(b.closers, b.rdb.Close)
	if err := b.rdb.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("redis does not answer: %w", err)
	}
	return nil
}

// launch makes and starts a container with the limits that all have.
func (b *bench) launch(ctx context.Context, l engines.Launch) (id string, err error) {
	l.Network, l.Memory, l.NanoCPUs, l.Pids = b.network, memoryLimit, nanoCPUs, pidsLimit
	if id, err = b.runtime.Create(ctx, l); err != nil {
		return "", fmt.Errorf("create: %w", err)
	}
	if err := b.runtime.Start(ctx, id); err != nil {
		return "", fmt.Errorf("start: %w", err)
	}
	return id, nil
}

// creates is how many containers a worker makes at once by default.
func creates() int { return max(6, 2*runtime.NumCPU()) }
