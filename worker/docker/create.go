package docker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/go-connections/nat"

	"github.com/roboco/sandboxd/engines"
)

// Labels that this package itself reads.
const (
	// labelOurs marks every container that may ever be removed.
	labelOurs, ours = "roboco.sandbox", "1"
	// labelPort keeps the port asked for, as an image may expose others beside it.
	labelPort = "roboco.sandbox.port"
	// labelMemory keeps the memory limit in bytes, as a listing does not tell it.
	labelMemory = "roboco.sandbox.memory"
)

// Create makes a container, hardened, and does not start it. The container always carries roboco.sandbox=1. When ctx
// ends meanwhile, what was made is removed; only when the engine's answer is lost (ErrUnavailable) may it still exist.
func (r *Runtime) Create(ctx context.Context, l engines.Launch) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", fmt.Errorf("create container %s: %w", l.Name, classify(err))
	}
	// Giving up half way would leave the engine to finish without anyone knowing the ID.
	sctx, cancel := r.settle(ctx)
	defer cancel()
	made, err := r.cli.ContainerCreate(sctx, config(l), r.hostConfig(l), networking(l), nil, l.Name)
	if err != nil {
		if errdefs.IsNotFound(err) && strings.Contains(err.Error(), "No such image") {
			return "", fmt.Errorf("create container %s: image %s: %w", l.Name, l.Image, classify(err))
		}
		return "", fmt.Errorf("create container %s: %w", l.Name, nameTaken(err))
	}
	for _, w := range made.Warnings {
		r.log.Debug().Str("container", l.Name).Msg(w)
	}
	if err := ctx.Err(); err != nil {
		r.discard(ctx, made.ID)
		return "", fmt.Errorf("create container %s: %w", l.Name, classify(err))
	}
	return made.ID, nil
}

// startTries bounds how often one start is tried anew after its network was put right.
const startTries = 3

// Start starts a container that was created; one that runs already is no error. When a process that starts at this moment
// has made a twin of its network, that is put right first. When it fails all the same, the container is removed, volumes
// and all: one that cannot start serves nobody.
func (r *Runtime) Start(ctx context.Context, id string) error {
	sctx, cancel := r.limit(ctx)
	defer cancel()
	err := r.cli.ContainerStart(sctx, id, container.StartOptions{})
	for try := 1; try < startTries && hasTwin(err); try++ {
		if herr := r.settleNetwork(ctx, id); herr != nil {
			err = errors.Join(err, herr)
			break
		}
		err = r.cli.ContainerStart(sctx, id, container.StartOptions{})
	}
	if err == nil {
		return nil
	}
	r.discard(ctx, id)
	if errdefs.IsNotFound(err) && !strings.Contains(err.Error(), "No such container") {
		// The network is what is missing, and "not found" would be taken for the container.
		return fmt.Errorf("start container %s: %s", id, err.Error())
	}
	return fmt.Errorf("start container %s: %w", id, classify(err))
}

// Rename gives a container another name, at which the network's DNS then finds it; ErrNameTaken when another one
// bears it. To bear it already is no error.
func (r *Runtime) Rename(ctx context.Context, id, name string) error {
	rctx, cancel := r.limit(ctx)
	defer cancel()
	err := r.cli.ContainerRename(rctx, id, name)
	if errdefs.IsInvalidArgument(err) {
		if c, ierr := r.Inspect(ctx, id); ierr == nil && c.Name == name {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("rename container %s to %s: %w", id, name, nameTaken(err))
	}
	return nil
}

// discard removes what a failed call left, also when the caller has gone. It is best effort: the janitor comes after.
func (r *Runtime) discard(ctx context.Context, id string) {
	ctx, cancel := r.settle(ctx)
	defer cancel()
	if err := r.Remove(ctx, id, 0); err != nil && !errors.Is(err, engines.ErrForeign) {
		r.log.Warn().Err(err).Str("container", id).Msg("a container that failed could not be removed")
	}
}

// config is what runs in the container.
func config(l engines.Launch) *container.Config {
	labels := maps.Clone(l.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[labelOurs] = ours
	if l.Memory > 0 {
		labels[labelMemory] = strconv.FormatInt(l.Memory, 10)
	}
	c := &container.Config{
		Image: l.Image, Entrypoint: l.Entrypoint, Cmd: l.Cmd, User: l.User, Labels: labels,
		// Readiness is proven over the network; an image's own health check would only cost time.
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
	}
	for _, k := range slices.Sorted(maps.Keys(l.Env)) {
		c.Env = append(c.Env, k+"="+l.Env[k])
	}
	if l.Port > 0 {
		labels[labelPort] = strconv.Itoa(l.Port)
		c.ExposedPorts = nat.PortSet{tcp(l.Port): {}}
	}
	return c
}

// hostConfig is what the container may do to its host: as little as can be. There is no field here by which a caller
// could mount a path of the host or the engine's socket.
func (r *Runtime) hostConfig(l engines.Launch) *container.HostConfig {
	h := &container.HostConfig{
		CapDrop:       []string{"ALL"},
		CapAdd:        l.Caps,
		SecurityOpt:   []string{"no-new-privileges:true"},
		IpcMode:       container.IPCModePrivate,
		ShmSize:       l.Shm,
		RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
		LogConfig:     container.LogConfig{Config: r.logLimits},
		Resources: container.Resources{
			Memory:     l.Memory,
			MemorySwap: l.Memory, // memory and swap together: no swap beyond the memory
			NanoCPUs:   l.NanoCPUs,
		},
	}
	if l.Pids > 0 {
		h.PidsLimit = &l.Pids
	}
	if l.Network != "" {
		h.NetworkMode = container.NetworkMode(l.Network)
	}
	if len(l.Tmpfs) > 0 {
		h.Tmpfs = map[string]string{}
		for _, t := range l.Tmpfs {
			h.Tmpfs[t.Path] = tmpfsOptions(t)
		}
	}
	if l.Loopback && l.Port > 0 {
		h.PortBindings = nat.PortMap{tcp(l.Port): {{HostIP: "127.0.0.1"}}}
	}
	return h
}

// networking joins the one network. The container's name is its DNS name there by itself, and follows a rename; an
// explicit alias would not.
func networking(l engines.Launch) *network.NetworkingConfig {
	if l.Network == "" {
		return nil
	}
	return &network.NetworkingConfig{EndpointsConfig: map[string]*network.EndpointSettings{l.Network: {}}}
}

// tmpfsOptions are mount options. A tmpfs over a path that the image declares a VOLUME takes the volume's place.
func tmpfsOptions(t engines.Tmpfs) string {
	var opts []string
	if t.Size > 0 {
		opts = append(opts, "size="+strconv.FormatInt(t.Size, 10))
	}
	if t.Mode != "" {
		opts = append(opts, "mode="+t.Mode)
	}
	if t.UID > 0 {
		opts = append(opts, "uid="+strconv.Itoa(t.UID))
	}
	if t.GID > 0 {
		opts = append(opts, "gid="+strconv.Itoa(t.GID))
	}
	return strings.Join(opts, ",")
}

// logLimits keeps a talkative server from filling the host's disk, for the drivers that know these options.
func logLimits(driver string) map[string]string {
	switch driver {
	case "json-file", "local":
		return map[string]string{"max-size": "8m", "max-file": "2"}
	}
	return nil
}

func tcp(port int) nat.Port { return nat.Port(strconv.Itoa(port) + "/tcp") }
