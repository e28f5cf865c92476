package docker

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"

	"github.com/roboco/sandboxd/engines"
)

// Capacity tells what the engine's host has, as the engine said when it was opened, and the sum of the memory limits of all
// sandbox containers on it that run or are about to.
func (r *Runtime) Capacity(ctx context.Context) (engines.Capacity, error) {
	has := engines.Capacity{CPUs: r.cpus, Memory: r.memory}
	lctx, cancel := r.limit(ctx)
	defer cancel()
	found, err := r.cli.ContainerList(lctx, container.ListOptions{All: true, Filters: filters.NewArgs(
		filters.Arg("label", labelOurs+"="+ours),
		filters.Arg("status", container.StateCreated), filters.Arg("status", container.StateRunning),
		filters.Arg("status", container.StatePaused), filters.Arg("status", container.StateRestarting),
	)})
	if err != nil {
		return has, fmt.Errorf("list sandboxes: %w", classify(err))
	}
	for _, c := range found {
		limit, err := r.memoryLimit(ctx, c)
		if err != nil {
			return has, err
		}
		has.Committed += limit
	}
	return has, nil
}

// memoryLimit is a container's, from its label; one that was made before there was the label is looked at. One that has gone
// meanwhile uses nothing.
func (r *Runtime) memoryLimit(ctx context.Context, c container.Summary) (int64, error) {
	if n, err := strconv.ParseInt(c.Labels[labelMemory], 10, 64); err == nil && n >= 0 {
		return n, nil
	}
	info, err := r.inspect(ctx, c.ID)
	switch {
	case errors.Is(err, engines.ErrNotFound):
		return 0, nil
	case err != nil:
		return 0, err
	case info.ContainerJSONBase == nil || info.HostConfig == nil:
		return 0, nil
	}
	return info.HostConfig.Memory, nil
}
