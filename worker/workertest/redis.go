package workertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// RedisServer is a Redis of one run's own, on loopback, whose append-only file lives through a kill.
type RedisServer interface {
	// Addr is host:port; it stays the same over a kill.
	Addr() string
	// Kill ends the server as a power cut of the process would (SIGKILL).
	Kill(ctx context.Context) error
	// Start starts it again with what its append-only file holds, repaired first, and waits until it answers.
	Start(ctx context.Context) error
	// Close ends it and removes what it left.
	Close() error
}

// redisImage is what a Redis of a test runs in.
const redisImage = "redis:8-alpine"

// The server is a child of the shell that keeps the container, so that a kill and a start need no new container: while the file
// hold is there, none is started. A crash may leave a torn append-only file. Redis 7 repairs it alone, but where the tear is inside
// a transaction, it appends to half of one; so the file is repaired before every start. It lies in memory: what a write has given to
// the kernel outlives the death of the process, and no slow sync holds back writes, which a kill would lose.
const keepServing = `cd /data
while :; do
  while [ -f hold ]; do sleep 0.02; done
  for m in appendonlydir/*.manifest; do [ -f "$m" ] && { yes | redis-check-aof --fix "$m" >/dev/null 2>&1 || true; }; done
  redis-server --bind 0.0.0.0 --protected-mode no --save '' --appendonly yes --appendfsync everysec --maxmemory-policy noeviction --dir /data &
  echo $! >server
  wait $!
done`

const (
	killServer  = `cd /data && touch hold && kill -9 "$(cat server)"`
	startServer = `rm -f /data/hold`
)

// RedisContainer runs the server in a container of this name.
func RedisContainer(ctx context.Context, name string) (RedisServer, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	c := &redisContainer{name: name, addr: fmt.Sprintf("127.0.0.1:%d", port)}
	_, err = docker(ctx, "run", "-d", "--name", name, "--label", "workertest=1", "-p", c.addr+":6379", "--tmpfs", "/data:size=2g",
		"--entrypoint", "sh", redisImage, "-c", keepServing)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if err := awaitRedis(ctx, c.addr); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

type redisContainer struct{ name, addr string }

func (c *redisContainer) Addr() string { return c.addr }

func (c *redisContainer) Kill(ctx context.Context) error {
	_, err := docker(ctx, "exec", c.name, "sh", "-c", killServer)
	return err
}

func (c *redisContainer) Start(ctx context.Context) error {
	if _, err := docker(ctx, "exec", c.name, "sh", "-c", startServer); err != nil {
		return err
	}
	return awaitRedis(ctx, c.addr)
}

func (c *redisContainer) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, err := docker(ctx, "rm", "-f", "-v", c.name)
	return err
}

func docker(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "docker", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("docker %s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
	}
	return strings.TrimSpace(string(out)), nil
}

// RedisBinary runs the redis-server on the PATH, with its files in dir.
func RedisBinary(ctx context.Context, dir string) (RedisServer, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	b := &redisBinary{dir: dir, port: port}
	if err := b.Start(ctx); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

type redisBinary struct {
	dir  string
	port int
	cmd  *exec.Cmd
}

func (b *redisBinary) Addr() string { return fmt.Sprintf("127.0.0.1:%d", b.port) }

func (b *redisBinary) Kill(context.Context) error {
	if b.cmd == nil || b.cmd.Process == nil {
		return nil
	}
	if err := b.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill redis-server: %w", err)
	}
	_ = b.cmd.Wait() // its error is the kill
	b.cmd = nil
	return nil
}

func (b *redisBinary) Start(ctx context.Context) error {
	if err := b.repair(ctx); err != nil {
		return err
	}
	// Not bound to ctx: the server outlives the call that starts it.
	b.cmd = exec.Command("redis-server", "--port", fmt.Sprint(b.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes",
		"--appendfsync", "no", "--maxmemory-policy", "noeviction", "--dir", b.dir, "--logfile", "log")
	if err := b.cmd.Start(); err != nil {
		return fmt.Errorf("start redis-server: %w", err)
	}
	return awaitRedis(ctx, b.Addr())
}

func (b *redisBinary) repair(ctx context.Context) error {
	manifests, err := filepath.Glob(filepath.Join(b.dir, "appendonlydir", "*.manifest"))
	if err != nil {
		return fmt.Errorf("look for the append-only file: %w", err)
	}
	for _, m := range manifests {
		fix := exec.CommandContext(ctx, "redis-check-aof", "--fix", m)
		fix.Stdin = strings.NewReader("y\ny\n")
		_ = fix.Run() // what it cannot repair, the start will report
	}
	return nil
}

func (b *redisBinary) Close() error { return b.Kill(context.Background()) }

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	port := l.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // of a TCP listener
	return port, l.Close()
}

// awaitRedis waits until the server answers and has loaded its file.
func awaitRedis(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	rdb := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialTimeout: time.Second, ReadTimeout: time.Second})
	defer rdb.Close()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := rdb.Ping(ctx).Err()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for redis at %s: %w: %w", addr, ctx.Err(), err)
		}
	}
}
