package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/events/eventstest"
	"github.com/roboco/sandboxd/state/statetest"
)

const nowhere = "127.0.0.1:1" // nothing listens there

// started runs a command that cannot come up, and gives what it said.
func started(t *testing.T, command string, env ...string) string {
	t.Helper()
	code, out := sandboxd(t.Context(), env, 50*time.Millisecond, command)
	require.Equal(t, exitFailed, code, out)
	return out
}

// oldRedis answers as a Redis of this version would, to what a start asks.
func oldRedis(t *testing.T, version string) string {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	info := "redis_version:" + version + "\r\n"
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				for lines := bufio.NewScanner(c); lines.Scan(); {
					switch strings.ToUpper(strings.TrimSpace(lines.Text())) {
					case "INFO":
						_, _ = io.WriteString(c, "$"+strconv.Itoa(len(info))+"\r\n"+info+"\r\n")
					case "HELLO", "PING", "XGROUP":
						_, _ = io.WriteString(c, "-ERR unknown command\r\n")
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

func TestStartChecksRedis(t *testing.T) {
	t.Parallel()
	require.Contains(t, started(t, "gateway", "ROBOCO_REDIS_URL=redis://"+oldRedis(t, "6.2.14")), "redis is version 6.2.14: 7.0 or later is needed")

	addr, _ := eventstest.StartOwnRedis(t)
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = rdb.Close() }()
	env := []string{"ROBOCO_REDIS_URL=redis://" + addr, "ROBOCO_DATABASE_URL=postgres://u:p@" + nowhere + "/d"}
	require.Contains(t, started(t, "gateway", env...), "keeps no append-only file", "a warning, and on to the next check")
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	out := started(t, "gateway", env...)
	require.Contains(t, out, "noeviction is needed")
	require.Contains(t, out, "ROBOCO_REDIS_URL")
	require.NotContains(t, out, "ROBOCO_DATABASE_URL")
}

func TestStartChecksTheSchema(t *testing.T) {
	t.Parallel()
	bus := "ROBOCO_REDIS_URL=redis://" + eventstest.StartRedis(t)
	for _, command := range []string{"gateway", "worker"} {
		out := started(t, command, bus, "ROBOCO_DATABASE_URL="+statetest.EmptyPostgres(t))
		require.Contains(t, out, "has no sandboxd schema")
		require.Contains(t, out, "sandboxd migrate")
	}
	for version, says := range map[string]string{"older": "older than", "newer": "newer than"} {
		database := statetest.StartPostgres(t)
		conn, err := pgx.Connect(t.Context(), database)
		require.NoError(t, err)
		change := "INSERT INTO sandboxd.schema_version (version_id, is_applied) VALUES (999, true)"
		if version == "older" {
			change = "DELETE FROM sandboxd.schema_version WHERE version_id = (SELECT max(version_id) FROM sandboxd.schema_version) AND version_id > 1"
		}
		tag, err := conn.Exec(t.Context(), change)
		require.NoError(t, err)
		require.NoError(t, conn.Close(t.Context()))
		if tag.RowsAffected() == 0 {
			continue // there is one version so far, and none older
		}
		require.Contains(t, started(t, "gateway", bus, "ROBOCO_DATABASE_URL="+database), says)
	}
}

// engine answers what a start asks of a container engine, in this version of its API.
func engine(api string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", api)
		if strings.HasSuffix(r.URL.Path, "/info") {
			_, _ = io.WriteString(w, `{"ID":"an-engine"}`)
		}
	})
}

func TestStartChecksTheEngine(t *testing.T) {
	t.Parallel()
	old := httptest.NewServer(engine("1.40"))
	defer old.Close()
	out := started(t, "worker", "DOCKER_HOST=tcp://"+old.Listener.Addr().String())
	require.Contains(t, out, "speaks API 1.40; 1.41 or later is needed")
	fine := httptest.NewServer(engine("1.41"))
	defer fine.Close()
	require.Contains(t, started(t, "worker", "DOCKER_HOST=tcp://"+fine.Listener.Addr().String(), "ROBOCO_REDIS_URL=redis://"+nowhere), "ROBOCO_REDIS_URL")
}

func TestStartMakesNoNetworkWhereThatIsForbidden(t *testing.T) {
	t.Parallel()
	needDocker(t)
	name := "sandboxd-absent-" + eventstest.Cell()
	out := started(t, "worker", "ROBOCO_REDIS_URL=redis://"+eventstest.StartRedis(t), "ROBOCO_DATABASE_URL="+statetest.StartPostgres(t),
		"ROBOCO_SANDBOX_WORKER_LISTEN=127.0.0.1:0", "ROBOCO_SANDBOX_NETWORK="+name, "ROBOCO_SANDBOX_NETWORK_CREATE=false", "ROBOCO_SANDBOX_CELL="+eventstest.Cell())
	require.Contains(t, out, "network "+name+" does not exist")
	require.Contains(t, out, "ROBOCO_SANDBOX_NETWORK_CREATE")
	require.Empty(t, dockerLines(t, "network", "ls", "-q", "--filter", "name="+name))
}

// late is a server that is not there yet.
type late struct {
	t      *testing.T
	addr   string
	target string
}

func newLate(t *testing.T, target string) *late {
	t.Helper()
	return &late{t: t, addr: "127.0.0.1:" + freePort(t), target: target}
}

// come makes it one that answers, as the target does.
func (l *late) come() {
	l.t.Helper()
	var lc net.ListenConfig
	listener, err := lc.Listen(l.t.Context(), "tcp", l.addr)
	require.NoError(l.t, err)
	l.t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			var d net.Dialer
			to, err := d.DialContext(context.Background(), "tcp", l.target)
			if err != nil {
				_ = c.Close()
				continue
			}
			pass := func(a, b net.Conn) { _, _ = io.Copy(a, b); _ = a.Close() }
			go pass(to, c)
			go pass(c, to)
		}
	}()
}

// What is away at the start and comes within the patience costs nothing but the wait, and the wait is told of.
func TestStartWaitsForWhatIsAway(t *testing.T) {
	t.Parallel()
	needDocker(t)
	database, err := url.Parse(statetest.StartPostgres(t))
	require.NoError(t, err)
	fake := httptest.NewServer(engine("1.41"))
	defer fake.Close()
	for _, c := range []struct {
		says string
		late *late
	}{
		{"the container engine", newLate(t, fake.Listener.Addr().String())},
		{"redis at ", newLate(t, eventstest.StartRedis(t))},
		{"postgres at ", newLate(t, database.Host)},
	} {
		env := []string{"ROBOCO_SANDBOX_WORKER_LISTEN=203.0.113.1:1"} // and that is where every start ends
		urls := map[string]string{"the container engine": fake.Listener.Addr().String(), "redis at ": eventstest.StartRedis(t), "postgres at ": database.Host}
		urls[c.says] = c.late.addr
		there := *database
		there.Host = urls["postgres at "]
		env = append(env, "DOCKER_HOST=tcp://"+urls["the container engine"], "ROBOCO_REDIS_URL=redis://"+urls["redis at "], "ROBOCO_DATABASE_URL="+there.String())
		var out buffer
		code := make(chan int, 1)
		go func() {
			p := program{environ: env, out: &out, err: &out, home: os.UserHomeDir, patience: never}
			code <- run(t.Context(), p, []string{"worker"})
		}()
		require.Eventually(t, func() bool { return strings.Contains(out.String(), "waiting for "+c.says) }, never, 10*time.Millisecond, "%s", &out)
		c.late.come()
		require.Equal(t, exitFailed, <-code, "%s", &out)
		require.Contains(t, out.String(), "ROBOCO_SANDBOX_WORKER_LISTEN", "it went on")
		require.Contains(t, out.String(), "answers")
	}
}
