package docker

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"
)

// RemoveNetwork removes the networks of this name that EnsureNetwork made and nothing is connected to. Others stay, and
// so does one that is not there.
func (r *Runtime) RemoveNetwork(ctx context.Context, name string) error {
	ctx, cancel := r.settle(ctx)
	defer cancel()
	found, err := r.cli.NetworkList(ctx, network.ListOptions{Filters: filters.NewArgs(
		filters.Arg("name", name), filters.Arg("label", labelOurs+"="+ours))})
	if err != nil {
		return fmt.Errorf("look for network %s: %w", name, classify(err))
	}
	for _, n := range found {
		if n.Name != name {
			continue
		}
		seen, err := r.cli.NetworkInspect(ctx, n.ID, network.InspectOptions{})
		if errdefs.IsNotFound(err) || (err == nil && len(seen.Containers) > 0) {
			continue
		}
		if err == nil {
			err = r.cli.NetworkRemove(ctx, n.ID)
		}
		if err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("remove network %s: %w", name, classify(err))
		}
	}
	return nil
}
