package docker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"github.com/roboco/sandboxd/engines"
)

// defaultStopSignal is the engine's own default, for images that name none.
const defaultStopSignal = "SIGTERM"

// Remove sends the image's stop signal, waits up to grace for the exit (0: no signal, no wait), then removes by force
// with anonymous volumes. A container that is gone already is no error; one without our label is ErrForeign.
func (r *Runtime) Remove(ctx context.Context, id string, grace time.Duration) error {
	info, err := r.inspect(ctx, id)
	if errors.Is(err, engines.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove: %w", err)
	}
	if info.Config == nil || info.Config.Labels[labelOurs] != ours {
		return fmt.Errorf("remove container %s (%s): %w", info.Name, info.ID, engines.ErrForeign)
	}
	if grace > 0 && info.State != nil && info.State.Running {
		r.ask(ctx, info, grace)
	}
	return r.remove(ctx, info.ID)
}

// ask gives the container the chance to exit by itself. The kill call is used because the stop call counts whole
// seconds. It is best effort: the removal by force comes in any case.
func (r *Runtime) ask(ctx context.Context, info container.InspectResponse, grace time.Duration) {
	signal := info.Config.StopSignal
	if signal == "" {
		signal = defaultStopSignal
	}
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if err := r.cli.ContainerKill(ctx, info.ID, signal); err != nil {
		r.log.Debug().Err(err).Str("container", info.ID).Msg("stop signal not sent")
		return
	}
	if _, err := r.WaitExit(ctx, info.ID); err != nil {
		r.log.Debug().Err(err).Str("container", info.ID).Dur("grace", grace).Msg("no exit within the grace")
	}
}

// remove takes the container away, whoever else is at it.
func (r *Runtime) remove(ctx context.Context, id string) error {
	ctx, cancel := r.limit(ctx)
	defer cancel()
	err := r.cli.ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true})
	if errdefs.IsConflict(err) {
		// Somebody else's removal is in progress; what counts is that it comes to its end.
		_, err = r.wait(ctx, id, container.WaitConditionRemoved)
	}
	if err == nil || errdefs.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("remove container %s: %w", id, classify(err))
}
