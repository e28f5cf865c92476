package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/system"

	"github.com/roboco/sandboxd/engines"
)

// HostID names the engine, stable over restarts of this process and of the engine.
func (r *Runtime) HostID(ctx context.Context) (string, error) {
	info, err := r.info(ctx)
	if err != nil {
		return "", err
	}
	if info.ID == "" {
		return "", fmt.Errorf("the container engine at %s has no ID", r.endpoint.host)
	}
	return info.ID, nil
}

// info is what the engine says of itself. Whatever goes wrong with that, nothing is known: the API client does not
// keep the cause of an answer that was cut off.
func (r *Runtime) info(ctx context.Context) (system.Info, error) {
	ctx, cancel := r.limit(ctx)
	defer cancel()
	info, err := r.cli.Info(ctx)
	if err != nil {
		return info, fmt.Errorf("ask the container engine at %s about itself: %w", r.endpoint.host, unavailable(err))
	}
	return info, nil
}

// EnsureNetwork makes the bridge network where none of that name exists, labelled roboco.sandbox=1. Any number of
// processes may do so at once: one network remains. With Config.FixedNetwork an absent one is an error.
func (r *Runtime) EnsureNetwork(ctx context.Context, name string) error {
	r.networkMu.Lock()
	defer r.networkMu.Unlock()
	found, err := r.networks(ctx, name)
	switch {
	case err == nil && len(found) == 0 && r.fixedNetwork:
		return fmt.Errorf("network %s does not exist, and ROBOCO_SANDBOX_NETWORK_CREATE=false forbids making it: "+
			"name another in ROBOCO_SANDBOX_NETWORK, or run `docker network create %s`", name, name)
	case err == nil && len(found) == 0:
		found, err = r.createNetwork(ctx, name)
	}
	if err == nil && len(found) > 1 {
		err = r.dropTwins(ctx, found)
	}
	if err != nil {
		return fmt.Errorf("ensure network %s: %w", name, err)
	}
	return nil
}

// networks are those of exactly this name, the oldest first.
func (r *Runtime) networks(ctx context.Context, name string) ([]network.Summary, error) {
	ctx, cancel := r.limit(ctx)
	defer cancel()
	found, err := r.cli.NetworkList(ctx, network.ListOptions{Filters: filters.NewArgs(filters.Arg("name", name))})
	if err != nil {
		return nil, classify(err)
	}
	found = slices.DeleteFunc(found, func(n network.Summary) bool { return n.Name != name })
	slices.SortFunc(found, func(a, b network.Summary) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return found, nil
}

// createNetwork makes it and gives what now bears the name.
func (r *Runtime) createNetwork(ctx context.Context, name string) ([]network.Summary, error) {
	cctx, cancel := r.settle(ctx)
	defer cancel()
	_, err := r.cli.NetworkCreate(cctx, name, network.CreateOptions{
		Driver: "bridge", Labels: map[string]string{labelOurs: ours},
	})
	if err != nil && !errdefs.IsConflict(err) {
		return nil, classify(err)
	}
	found, err := r.networks(ctx, name)
	if err == nil && len(found) == 0 {
		err = errors.New("it was removed as soon as it was made")
	}
	return found, err
}

// hasTwin reports that a container did not start because its network bears a name that another one bears too. The engine
// has no code for that: there are only its words.
func hasTwin(err error) bool { return err != nil && strings.Contains(err.Error(), "is ambiguous") }

// settleNetwork leaves one network of the name that a container was created for. It makes none: that is for a start, where
// it may be forbidden.
func (r *Runtime) settleNetwork(ctx context.Context, id string) error {
	ictx, cancel := r.limit(ctx)
	defer cancel()
	c, err := r.cli.ContainerInspect(ictx, id)
	if err != nil {
		return fmt.Errorf("look up the network of container %s: %w", id, classify(err))
	}
	r.networkMu.Lock()
	defer r.networkMu.Unlock()
	name := string(c.HostConfig.NetworkMode)
	found, err := r.networks(ctx, name)
	if err == nil && len(found) > 1 {
		err = r.dropTwins(ctx, found)
	}
	if err != nil {
		return fmt.Errorf("settle network %s: %w", name, err)
	}
	return nil
}

// dropTwins settles a race: the engine's check for a name in use is not atomic, and with two networks of one name no
// container can join either. Everyone begins with the youngest, so that everyone keeps the same one; one that is not
// ours is left alone, and the engine itself refuses to remove one that is in use.
func (r *Runtime) dropTwins(ctx context.Context, found []network.Summary) error {
	left := len(found)
	var kept []error
	for _, n := range slices.Backward(found) {
		if left == 1 {
			return nil
		}
		if n.Labels[labelOurs] != ours {
			kept = append(kept, fmt.Errorf("%s is %w", n.ID, engines.ErrForeign))
			continue
		}
		rctx, cancel := r.limit(ctx)
		err := r.cli.NetworkRemove(rctx, n.ID)
		cancel()
		if err != nil && !errdefs.IsNotFound(err) {
			kept = append(kept, classify(err))
			continue
		}
		left--
	}
	if left > 1 {
		return fmt.Errorf("%d networks bear the name: %w", left, errors.Join(kept...))
	}
	return nil
}
