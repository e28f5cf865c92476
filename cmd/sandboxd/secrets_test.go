package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
)

// search looks for secrets in all that a system writes down.
type search struct {
	*installation

	admin   *redis.Client
	store   string            // URL of the durable store
	logs    map[string]string // files, by process
	metrics []string          // URLs
	secrets map[string]string // value -> what it is
	found   map[string]string // place -> text
}

func newSearch(t *testing.T) *search {
	t.Helper()
	s := &search{installation: install(t), logs: map[string]string{}, secrets: map[string]string{}, found: map[string]string{}}
	s.admin = redis.NewClient(&redis.Options{Addr: s.redis})
	t.Cleanup(func() { _ = s.admin.Close() })
	s.secrets[s.operator] = "the operator's token"
	key := base64.StdEncoding.EncodeToString([]byte(uuid.NewString()[:32]))
	s.secrets[key] = "the sealing key"
	for i, kv := range s.env {
		if v, ok := strings.CutPrefix(kv, "ROBOCO_DATABASE_URL="); ok {
			s.store = v
			u, err := url.Parse(v)
			require.NoError(t, err)
			password, _ := u.User.Password()
			s.secrets[password] = "the durable store's password"
		}
		if strings.HasPrefix(kv, "ROBOCO_REDIS_URL=") {
			s.env[i] = "ROBOCO_IGNORED=" // each process has a user of its own
		}
	}
	s.env = append(s.env, "ROBOCO_SANDBOX_LOG_LEVEL=debug", "ROBOCO_SANDBOX_SEAL_KEYS=k1:"+key, "ROBOCO_SANDBOX_MONGO_IMAGE=postgres:16-alpine",
		"ROBOCO_SANDBOX_GRACE=0s", "ROBOCO_SANDBOX_JANITOR_INTERVAL=1s")
	return s
}

// process starts one under a Redis user of its own, its log in a file, and gives the address it tells in a field of it.
func (s *search) process(command, field string, rules []string) string {
	s.t.Helper()
	password := uuid.NewString()
	s.secrets[password] = "the Redis password of " + command
	require.NoError(s.t, s.admin.ACLSetUser(s.t.Context(), command, append([]string{"reset", "on", ">" + password}, rules...)...).Err())
	path := filepath.Join(s.t.TempDir(), command+".log")
	log, err := os.Create(path)
	require.NoError(s.t, err)
	cmd := exec.Command(s.binary, command)
	cmd.Env = append(s.env, "ROBOCO_REDIS_URL=redis://"+command+":"+password+"@"+s.redis)
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(s.t, cmd.Start())
	s.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait(); _ = log.Close() })
	s.logs[command] = path
	var addr string
	require.Eventually(s.t, func() bool {
		text, err := os.ReadFile(path)
		m := regexp.MustCompile(`"` + field + `":"([^"]+)"`).FindSubmatch(text)
		if err != nil || m == nil {
			return false
		}
		addr = string(m[1])
		return true
	}, never, 20*time.Millisecond, "%s did not come up", command)
	s.metrics = append(s.metrics, "http://"+addr+"/metrics")
	return addr
}

func (s *search) put(place, text string) { s.found[place] += text + "\n" }

// gather reads everything that the system has written down until now.
func (s *search) gather(when string) {
	s.t.Helper()
	for command, path := range s.logs {
		text, err := os.ReadFile(path)
		require.NoError(s.t, err)
		s.put("log of "+command, string(text))
	}
	for _, url := range s.metrics {
		resp, err := http.Get(url)
		require.NoError(s.t, err)
		text, err := io.ReadAll(resp.Body)
		require.NoError(s.t, err)
		require.NoError(s.t, resp.Body.Close())
		s.put("metrics", string(text))
	}
	s.gatherRedis()
	s.gatherStore()
	s.gatherProcesses()
	for _, id := range s.containers() {
		out, err := exec.Command("docker", "logs", id).CombinedOutput()
		require.NoError(s.t, err)
		s.put("logs of the containers", string(out))
		out, _ = exec.Command("docker", "top", id, "-eo", "pid,args").CombinedOutput() // one that has ended has none
		s.put("processes of the containers", string(out))
	}
	op := s.client(s.operator)
	for _, path := range []string{"sandboxes", "requests", "dead", "agents", "projects", "engines", "verbs"} {
		req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+"/api/v1/"+path, nil)
		require.NoError(s.t, err)
		req.Header.Set("Authorization", "Bearer "+s.operator)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(s.t, err)
		text, err := io.ReadAll(resp.Body)
		require.NoError(s.t, err)
		require.NoError(s.t, resp.Body.Close())
		s.put("what operators read", string(text))
	}
	_, err := op.Health(s.t.Context())
	require.NoError(s.t, err, when)
}

// gatherRedis reads every key, records and replies too: they are sealed.
func (s *search) gatherRedis() {
	s.t.Helper()
	ctx := s.t.Context()
	keys, err := s.admin.Keys(ctx, "*").Result()
	require.NoError(s.t, err)
	for _, key := range keys {
		var v any
		switch kind := s.admin.Type(ctx, key).Val(); kind {
		case "stream":
			v, err = s.admin.XRange(ctx, key, "-", "+").Result()
		case "hash":
			v, err = s.admin.HGetAll(ctx, key).Result()
		case "set":
			v, err = s.admin.SMembers(ctx, key).Result()
		case "zset":
			v, err = s.admin.ZRange(ctx, key, 0, -1).Result()
		case "string":
			v, err = s.admin.Get(ctx, key).Result()
		case "none":
			continue // it has lapsed meanwhile
		default:
			require.Fail(s.t, "a key of another kind", "%s is a %s", key, kind)
		}
		require.NoError(s.t, err)
		s.put("redis", fmt.Sprintf("%s %v", key, v))
	}
}

// gatherStore reads every row of every table.
func (s *search) gatherStore() {
	s.t.Helper()
	ctx := s.t.Context()
	conn, err := pgx.Connect(ctx, s.store)
	require.NoError(s.t, err)
	defer func() { _ = conn.Close(ctx) }()
	rows, err := conn.Query(ctx, "SELECT tablename FROM pg_tables WHERE schemaname = 'sandboxd'")
	require.NoError(s.t, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(s.t, err)
	require.NotEmpty(s.t, tables)
	for _, table := range tables {
		rows, err := conn.Query(ctx, "SELECT t::text FROM sandboxd."+pgx.Identifier{table}.Sanitize()+" t")
		require.NoError(s.t, err)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(s.t, err)
		s.put("durable store", table+"\n"+strings.Join(lines, "\n"))
	}
}

// gatherProcesses reads the command line of every process of this machine.
func (s *search) gatherProcesses() {
	s.t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(s.t, err)
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err == nil { // else it has ended meanwhile
			s.put("command lines", strings.ReplaceAll(string(text), "\x00", " "))
		}
	}
}

// notePasswords takes every password of the containers that live: the agent's, and the superuser's.
func (s *search) notePasswords() {
	s.t.Helper()
	for _, id := range s.containers() {
		text, err := exec.Command("docker", "inspect", "-f", "{{range .Config.Env}}{{println .}}{{end}}", id).Output()
		if err != nil {
			continue // it has gone meanwhile
		}
		for kv := range strings.FieldsSeq(string(text)) {
			name, value, _ := strings.Cut(kv, "=")
			if (name == engines.EnvPassword || name == engines.EnvAdminPassword || strings.HasSuffix(name, "_PASSWORD")) && value != "" {
				s.secrets[value] = name + " of a container"
			}
		}
	}
}

// token notes an agent's token.
func (s *search) token(slug, role string) *client.Client {
	s.t.Helper()
	a, err := s.client(s.operator).CreateAgent(s.t.Context(), slug, role)
	require.NoError(s.t, err)
	s.secrets[a.Token] = "the token of " + slug
	return s.client(a.Token)
}

// live takes two agents through everything that makes or moves credentials, failures included.
func (s *search) live() {
	t, ctx := s.t, s.t.Context()
	op := s.client(s.operator)
	for slug, services := range map[string][]string{"shop": {"postgres", "redis"}, "broken": {"mongo"}} {
		_, err := op.PutProject(ctx, client.Project{Slug: slug, Name: slug, Services: services})
		require.NoError(t, err)
	}
	slug := "s" + s.cell[:12]
	dev, unlucky, chief := s.token(slug, "developer"), s.token(slug+"-u", "qa"), s.token(slug+"-c", "choreographer")
	for agent, project := range map[string]string{slug: "shop", slug + "-u": "broken"} {
		data, err := json.Marshal(map[string]string{"task_id": "T-1", "project": project, "owner": "lease"})
		require.NoError(t, err)
		_, err = chief.PublishEvent(ctx, client.Event{ID: uuid.NewString(), Source: "test", Type: "work.started", Subject: agent, Data: data})
		require.NoError(t, err)
	}
	for _, extensions := range []map[string][]string{nil, nil, {"postgres": {"vector"}}, {"postgres": {"citext"}, "redis": {"json"}}} { // made, hit, replaced, extended
		env, err := dev.RequestSandbox(ctx, client.SandboxRequest{Extensions: extensions}, nil)
		require.NoError(t, err)
		for _, e := range env.Evidence {
			s.secrets[e.Password] = "an agent's password"
		}
		s.notePasswords()
	}
	_, err := unlucky.RequestSandbox(ctx, client.SandboxRequest{}, nil)
	require.Error(t, err, "that image is no mongo")
	s.put("error texts", err.Error())
	_, err = dev.Sandbox(ctx)
	require.NoError(t, err)
	logs, err := dev.Logs(ctx, client.LogsFilter{})
	require.NoError(t, err)
	s.put("engine logs", fmt.Sprint(logs.Logs))
	_, err = s.client("wrong-" + s.operator[:8]).Agents(ctx)
	require.Error(t, err)
	s.put("error texts", err.Error())
	require.NoError(t, s.admin.XAdd(ctx, &redis.XAddArgs{Stream: "{" + s.cell + "}:events", Values: []any{"nonsense", "1"}}).Err())
	require.Eventually(t, func() bool {
		page, err := op.DeadLetters(ctx, "", 0)
		return err == nil && len(page.Letters) == 1
	}, never, 50*time.Millisecond, "a dead letter")

	s.gather("while it lives")
	_, err = dev.EndWork(ctx, "i_am_done", "")
	require.NoError(t, err)
	renewed, err := op.NewToken(ctx, slug)
	require.NoError(t, err)
	s.secrets[renewed.Token] = "a renewed token"
	require.Eventually(t, func() bool { return len(s.containers()) == 0 }, never, 50*time.Millisecond)
	s.gather("after the end")
}

// No password, token or key is ever written down in the open: not in a log at its most talkative, a metric, an event, a row, a
// command line, an error or a key of Redis. Only `docker inspect` tells a container's own.
func TestNoSecretIsWrittenDown(t *testing.T) {
	t.Parallel()
	s := newSearch(t)
	s.url = "http://" + s.process("gateway", "listen", events.GatewayACL(s.cell))
	s.process("worker", "probes", events.WorkerACL(s.cell))
	s.live()

	t.Log("the look is a fair one: each place has what belongs there")
	for place, has := range map[string]string{
		"log of gateway": "gateway started", "log of worker": `"level":"debug"`, "metrics": "sandboxd_provision_seconds", "redis": "sealed:1:k1:",
		"durable store": "T-1", "command lines": s.binary, "logs of the containers": "database system is ready", "processes of the containers": "postgres",
		"what operators read": "container_id", "error texts": "mongo", "engine logs": "postgres",
	} {
		require.Contains(t, s.found[place], has, place)
	}
	require.Greater(t, len(s.secrets), 14)
	for secret, what := range s.secrets {
		require.GreaterOrEqual(t, len(secret), 16, what)
		for place, text := range s.found {
			if strings.Contains(text, secret) {
				t.Errorf("%s stands in the %s", what, place)
			}
		}
	}
	log, err := s.admin.ACLLog(context.Background(), 100).Result()
	require.NoError(t, err)
	require.Empty(t, log, "no user was refused what it needs")
}
