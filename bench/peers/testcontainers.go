package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/moby/moby/api/types/container"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
	"github.com/testcontainers/testcontainers-go/modules/mongodb"
	"github.com/testcontainers/testcontainers-go/modules/postgres"
	"github.com/testcontainers/testcontainers-go/modules/redis"
	"github.com/testcontainers/testcontainers-go/wait"
)

// testcontainer is testcontainers-go with its module for each engine, and the wait that the module recommends.
type testcontainer struct{ labels map[string]string }

// newTestcontainer settles what the library reads from the environment. Its reaper's image is one that must be pulled, which
// is not to be had everywhere: without it the library has less to do. Where this program itself runs in a container, the
// library would look for published ports at the gateway, though they are on this machine's loopback.
func newTestcontainer(label, value string) (testcontainer, error) {
	settings := map[string]string{"TESTCONTAINERS_RYUK_DISABLED": "true"}
	if host := os.Getenv("DOCKER_HOST"); host == "" || strings.HasPrefix(host, "unix:") {
		settings["TESTCONTAINERS_HOST_OVERRIDE"] = "127.0.0.1"
	}
	for k, v := range settings {
		if err := os.Setenv(k, v); err != nil {
			return testcontainer{}, fmt.Errorf("testcontainers: %w", err)
		}
	}
	log.SetDefault(log.NewNoopLogger())
	return testcontainer{labels: map[string]string{label: value}}, nil
}

func (testcontainer) together() bool { return true }

func (t testcontainer) start(ctx context.Context, o order) (func(context.Context) error, error) {
	opts := []testcontainers.ContainerCustomizer{
		testcontainers.WithLabels(t.labels),
		testcontainers.WithHostConfigModifier(func(h *container.HostConfig) {
			most := int64(pids)
			h.Memory, h.NanoCPUs, h.PidsLimit = memory, nanoCPUs, &most
		}),
	}
	if o.data != "" {
		opts = append(opts, testcontainers.WithTmpfs(map[string]string{o.data: "rw"}))
	}
	c, err := run(ctx, o, opts)
	if c == nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		if err := testcontainers.TerminateContainer(c, testcontainers.StopContext(ctx), testcontainers.StopTimeout(0)); err != nil {
			return fmt.Errorf("terminate: %w", err)
		}
		return nil
	}, err
}

// run starts the module's container. It gives a nil one where none was made.
func run(ctx context.Context, o order, opts []testcontainers.ContainerCustomizer) (made testcontainers.Container, err error) {
	switch o.engine {
	case "postgres":
		opts = append(opts, postgres.WithUsername(user), postgres.WithPassword(password), postgres.WithDatabase(user), postgres.BasicWaitStrategies())
		var c *postgres.PostgresContainer
		if c, err = postgres.Run(ctx, o.image, opts...); c != nil {
			made = c
		}
	case "redis":
		opts = append(opts, testcontainers.WithCmdArgs("--requirepass", password))
		var c *redis.RedisContainer
		if c, err = redis.Run(ctx, o.image, opts...); c != nil {
			made = c
		}
	case "mongo":
		opts = append(opts, mongodb.WithUsername(user), mongodb.WithPassword(password))
		if standIn(ctx, o.image) {
			opts = append(opts, testcontainers.WithWaitStrategy(wait.ForListeningPort("27017/tcp")))
		}
		var c *mongodb.MongoDBContainer
		if c, err = mongodb.Run(ctx, o.image, opts...); c != nil {
			made = c
		}
	}
	if err != nil {
		return made, fmt.Errorf("run: %w", err)
	}
	return made, nil
}

// standIn says that the image is a stand-in of this project's, whose server does not write the line that the module for
// mongo waits for.
func standIn(ctx context.Context, image string) bool {
	out, err := exec.CommandContext(ctx, "docker", "image", "inspect", "-f", `{{index .Config.Labels "roboco.sandbox.stand-in"}}`, image).Output()
	return err == nil && strings.TrimSpace(string(out)) == "1"
}
