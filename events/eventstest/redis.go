// Package eventstest gives tests a Redis: a real one in a container, or the embedded one.
//
// Both are shared by all tests of a process: a test takes a cell of its own and can run beside any other, unless it
// flushes: that one starts a Redis for itself.
package eventstest

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// Image is the Redis that tests run against.
const Image = "redis:8-alpine"

// startLimit bounds the start of a container, on a machine that is busy.
const startLimit = 60 * time.Second

// shared is the one container of this process.
//
//nolint:gochecknoglobals // a container per test process, not per test
var shared struct {
	once sync.Once
	addr string
	stop func() // never called, but it holds the pipe that keeps the container
	err  error
}

// StartRedis gives the address (host:port) of a real Redis that all tests of this process share. Without Docker,
// or without its image, the test is skipped, or fails where REQUIRE_DOCKER=1; it is skipped under -short.
func StartRedis(t testing.TB) string {
	t.Helper()
	needDocker(t)
	shared.once.Do(func() { shared.addr, shared.stop, shared.err = run(true) })
	if shared.err != nil {
		t.Fatalf("start redis: %v", shared.err)
	}
	return shared.addr
}

// StartOwnRedis gives the address of a real Redis that this test has for itself, and may flush or kill. stop kills it: its port
// on this host then refuses.
func StartOwnRedis(t testing.TB) (addr string, stop func()) {
	t.Helper()
	needDocker(t)
	addr, stop, err := run(false)
	if err != nil {
		t.Fatalf("start redis: %v", err)
	}
	t.Cleanup(stop)
	return addr, stop
}

// StartEmbedded gives the address of an embedded Redis of this test's own, whose TTLs run with the clock.
func StartEmbedded(t testing.TB) string {
	t.Helper()
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	if err := m.Start(); err != nil {
		t.Fatalf("start the embedded redis: %v", err)
	}
	t.Cleanup(m.Close)
	return m.Addr()
}

// Clients opens the two clients a bus needs, and closes them after the test.
func Clients(t testing.TB, addr string) (calls, blocking *redis.Client) {
	t.Helper()
	open := func(o *redis.Options) *redis.Client {
		c := redis.NewClient(o)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	return open(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, ReadTimeout: 5 * time.Second}),
		open(&redis.Options{Addr: addr, MaxRetries: -1, PoolSize: 50})
}

// Cell is a name nobody else uses.
func Cell() string { return "t" + strings.ToLower(rand.Text()[:12]) }

// needDocker skips or fails a test that has no Docker to run with.
func needDocker(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs Docker: not under -short")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "docker", "image", "inspect", "--format", "{{.Id}}", Image).CombinedOutput()
	if err == nil {
		return
	}
	why := fmt.Sprintf("needs Docker and the image %s (make images): %v: %s", Image, err, strings.TrimSpace(string(out)))
	if os.Getenv("REQUIRE_DOCKER") == "1" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// run starts a container that lives as long as its standard input is open: it goes with this process, however that ends. Straight
// is by its own address where there is a way to it: docker's proxy takes as much of the processor as Redis.
func run(straight bool) (addr string, stop func(), err error) {
	name := "sandboxd-events-test-" + strings.ToLower(rand.Text()[:10])
	const serve = `redis-server --save "" --appendonly no --maxmemory-policy noeviction >/dev/null & cat >/dev/null; kill -9 $!`
	cmd := exec.Command("docker", "run", "--rm", "-i", "--name", name, "-p", "127.0.0.1::6379", "--entrypoint", "sh", Image, "-c", serve) // it outlives the test that starts it
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	var once sync.Once
	stop = func() {
		once.Do(func() {
			_ = in.Close()
			_ = cmd.Wait()
		})
	}
	if addr, err = answering(name, straight); err != nil {
		stop()
		return "", nil, err
	}
	return addr, stop, nil
}

// answering waits until a container's Redis answers, and gives its address.
func answering(name string, straight bool) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		_, last := answersAt(ctx, name, straight)
		if last == nil {
			return answersAt(ctx, name, straight) // it may have begun to answer between two of its addresses
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("container %s does not answer: %w", name, last)
		case <-tick.C:
		}
	}
}

// answersAt is the first of a container's addresses where its Redis answers now.
func answersAt(ctx context.Context, name string, straight bool) (string, error) {
	last := errors.New("it has no address")
	for _, addr := range addresses(ctx, name, straight) {
		if last = ping(ctx, addr); last == nil {
			return addr, nil
		}
	}
	return "", last
}

// addresses are the ways to a container's Redis: its port on this host, and before that the straight one.
func addresses(ctx context.Context, name string, straight bool) (all []string) {
	format := `{{range index .NetworkSettings.Ports "6379/tcp"}}{{.HostIp}}:{{.HostPort}}{{end}}`
	if straight {
		format = `{{.NetworkSettings.IPAddress}}:6379 ` + format
	}
	out, _ := exec.CommandContext(ctx, "docker", "inspect", "--format", format, name).Output() // it may not be there yet
	for addr := range strings.FieldsSeq(string(out)) {
		if host, port, err := net.SplitHostPort(addr); err == nil && host != "" && port != "" {
			all = append(all, addr)
		}
	}
	return all
}

// ping asks the server itself: docker's proxy accepts a connection before there is one.
func ping(ctx context.Context, addr string) error {
	d := net.Dialer{Timeout: time.Second} // not every machine has a way to its containers
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && !strings.HasPrefix(line, "+PONG") {
		err = fmt.Errorf("it answers %q", line)
	}
	return err
}
