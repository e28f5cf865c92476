package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// commandLine is the protocol of the system that sandboxd replaces: command-line docker, engines one after another; for each,
// a look at the image, a removal of what may bear the name, a run, and a probe by exec each second until one succeeds.
type commandLine struct{ label, network, owner string }

func (commandLine) together() bool { return false }

func (c commandLine) start(ctx context.Context, o order) (func(context.Context) error, error) {
	name := "sandboxd-bench-peer-" + o.engine + "-" + c.owner
	if err := docker(ctx, "image", "inspect", o.image); err != nil {
		return nil, err
	}
	_ = docker(ctx, "rm", "-f", name) // there is none, as a rule
	args := []string{"run", "-d", "--name", name, "--network", c.network, "--label", c.label, "--memory", "512m", "--cpus", "1"}
	if o.data != "" {
		args = append(args, "--tmpfs", o.data)
	}
	for _, pair := range o.pairs() {
		args = append(args, "-e", pair)
	}
	remove := func(ctx context.Context) error { return docker(ctx, "rm", "-f", "-v", name) }
	if err := docker(ctx, append(append(args, o.image), o.cmd...)...); err != nil {
		return remove, err
	}
	probe := append([]string{"exec", name}, probeInside(o.engine)...)
	for {
		err := docker(ctx, probe...)
		if err == nil {
			return remove, nil
		}
		select {
		case <-ctx.Done():
			return remove, fmt.Errorf("not ready: %w", err)
		case <-time.After(time.Second):
		}
	}
}

// probeInside is what is run in the container. The stand-in for mongo has no shell of its own, so its port is tried, which
// takes less than the shell would.
func probeInside(engine string) []string {
	switch engine {
	case "postgres":
		return []string{"pg_isready", "-U", user}
	case "redis":
		return []string{"redis-cli", "-a", password, "ping"}
	}
	return []string{"bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/27017"}
}

func docker(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "docker", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("docker %s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
	}
	return nil
}
