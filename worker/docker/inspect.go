package docker

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"

	"github.com/roboco/sandboxd/engines"
)

// Inspect takes a full ID or a name; ErrNotFound when there is none. (The engine would also take the beginning of an
// ID; such a match is none here.)
func (r *Runtime) Inspect(ctx context.Context, idOrName string) (engines.Container, error) {
	info, err := r.inspect(ctx, idOrName)
	if err != nil {
		return engines.Container{}, err
	}
	return describe(info), nil
}

func (r *Runtime) inspect(ctx context.Context, idOrName string) (container.InspectResponse, error) {
	ctx, cancel := r.limit(ctx)
	defer cancel()
	info, err := r.cli.ContainerInspect(ctx, idOrName)
	if err != nil {
		return info, fmt.Errorf("inspect container %s: %w", idOrName, classify(err))
	}
	if name := strings.TrimPrefix(idOrName, "/"); info.ID != idOrName && strings.TrimPrefix(info.Name, "/") != name {
		return info, fmt.Errorf("inspect container %s: %w", idOrName, engines.ErrNotFound)
	}
	return info, nil
}

// List gives all containers, stopped ones too, that carry every one of these labels with that value.
func (r *Runtime) List(ctx context.Context, labels map[string]string) ([]engines.Container, error) {
	args := filters.NewArgs()
	for k, v := range labels {
		args.Add("label", k+"="+v)
	}
	return r.list(ctx, args)
}

// ListNamed gives all containers, stopped ones too, whose name begins with prefix.
func (r *Runtime) ListNamed(ctx context.Context, prefix string) ([]engines.Container, error) {
	// The engine matches an expression against the name with a slash before it, and once more without.
	all, err := r.list(ctx, filters.NewArgs(filters.Arg("name", "^/?"+regexp.QuoteMeta(prefix))))
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(c engines.Container) bool { return !strings.HasPrefix(c.Name, prefix) }), nil
}

func (r *Runtime) list(ctx context.Context, args filters.Args) ([]engines.Container, error) {
	ctx, cancel := r.limit(ctx)
	defer cancel()
	found, err := r.cli.ContainerList(ctx, container.ListOptions{All: true, Filters: args})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", classify(err))
	}
	all := make([]engines.Container, 0, len(found))
	for _, s := range found {
		all = append(all, engines.Container{
			ID: s.ID, Name: ownName(s.Names), Image: cmp.Or(s.Labels[engines.LabelImage], s.Image), Labels: s.Labels, Created: time.Unix(s.Created, 0).UTC(),
			// As Inspect has it, where what is paused or restarting counts as running.
			Running: s.State == container.StateRunning || s.State == container.StatePaused || s.State == container.StateRestarting,
		})
	}
	return all, nil
}

// ownName is the container's own name among those it has; the others are names that links gave it, with two slashes.
func ownName(names []string) string {
	for _, n := range names {
		if n = strings.TrimPrefix(n, "/"); !strings.Contains(n, "/") {
			return n
		}
	}
	return ""
}

// describe fills every field.
func describe(info container.InspectResponse) engines.Container {
	c := engines.Container{ID: info.ID, Name: strings.TrimPrefix(info.Name, "/")}
	c.Created, _ = time.Parse(time.RFC3339Nano, info.Created) // zero when the engine gives none
	if s := info.State; s != nil {
		c.Running, c.Paused, c.StartedAt, c.OOMKilled = s.Running, s.Paused, s.StartedAt, s.OOMKilled
		if !s.Running {
			c.ExitCode = s.ExitCode
		}
		// A restart keeps the time at which the life before ended.
		finished, err := time.Parse(time.RFC3339Nano, s.FinishedAt)
		c.FirstLife = s.Running && err == nil && finished.IsZero()
	}
	if cfg := info.Config; cfg != nil {
		c.Image, c.Labels = cmp.Or(cfg.Labels[engines.LabelImage], cfg.Image), cfg.Labels
		c.Env = make(map[string]string, len(cfg.Env))
		for _, kv := range cfg.Env {
			k, v, _ := strings.Cut(kv, "=")
			c.Env[k] = v
		}
	}
	c.Addrs, c.LoopbackPort = addrs(info)
	return c
}

// addrs are the addresses of the exposed port: in the container's networks first, then on loopback.
func addrs(info container.InspectResponse) (hostports []string, loopback int) {
	port := exposed(info.Config)
	if port == 0 || info.NetworkSettings == nil {
		return nil, 0
	}
	networks := info.NetworkSettings.Networks
	for _, name := range slices.Sorted(maps.Keys(networks)) {
		if n := networks[name]; n != nil && n.IPAddress != "" {
			hostports = append(hostports, net.JoinHostPort(n.IPAddress, strconv.Itoa(port)))
		}
	}
	for _, b := range info.NetworkSettings.Ports[tcp(port)] {
		p, err := strconv.Atoi(b.HostPort)
		if err != nil || p == 0 || (b.HostIP != "127.0.0.1" && b.HostIP != "0.0.0.0") {
			continue
		}
		return append(hostports, net.JoinHostPort("127.0.0.1", b.HostPort)), p
	}
	return hostports, 0
}

// exposed is the port that the container was made for; of one made elsewhere, its lowest exposed TCP port.
func exposed(cfg *container.Config) int {
	if cfg == nil {
		return 0
	}
	if p, err := strconv.Atoi(cfg.Labels[labelPort]); err == nil {
		return p
	}
	lowest := 0
	for p := range cfg.ExposedPorts {
		if n := p.Int(); p.Proto() == "tcp" && (lowest == 0 || n < lowest) {
			lowest = n
		}
	}
	return lowest
}
