package docker

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"
)

// maxLogs is the most that Logs returns, in bytes.
const maxLogs = 64 << 10

// Logs gives the last lines of both streams, in the order in which the engine read them, at most the last 64 KiB.
// Passwords in it are for the caller to blank.
func (r *Runtime) Logs(ctx context.Context, id string, lines int) (string, error) {
	ctx, cancel := r.limit(ctx)
	defer cancel()
	stream, err := r.cli.ContainerLogs(ctx, id, container.LogsOptions{
		ShowStdout: true, ShowStderr: true, Tail: strconv.Itoa(max(lines, 0)),
	})
	if err != nil {
		return "", fmt.Errorf("logs of container %s: %w", id, classify(err))
	}
	defer func() { _ = stream.Close() }() // only read from
	var end tail
	if _, err := stdcopy.StdCopy(&end, &end, stream); err != nil {
		return "", fmt.Errorf("logs of container %s: %w", id, classify(err))
	}
	return strings.ToValidUTF8(string(end), "\uFFFD"), nil
}

// tail keeps the last maxLogs bytes written to it.
type tail []byte

// Write never fails.
func (t *tail) Write(p []byte) (int, error) {
	*t = append(*t, p...)
	if over := len(*t) - maxLogs; over > 0 {
		*t = append((*t)[:0], (*t)[over:]...)
	}
	return len(p), nil
}
