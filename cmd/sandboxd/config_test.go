package main

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/engines"
)

func TestConfigDefaults(t *testing.T) {
	t.Parallel()
	cfg, err := loadConfig(nil)
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:8420", cfg.Listen)
	require.Equal(t, "127.0.0.1:8421", cfg.WorkerListen)
	require.Equal(t, "roboco_default", cfg.Network)
	require.Equal(t, "sandbox", cfg.Cell)
	require.Equal(t, "none", cfg.Publish)
	require.Equal(t, "container", cfg.Owner)
	require.EqualValues(t, 512<<20, cfg.Memory)
	require.EqualValues(t, 1_000_000_000, cfg.CPUs)
	require.Equal(t, 12*time.Hour, cfg.TTL)
	require.Equal(t, 180*time.Second, cfg.Grace)
	require.Equal(t, 30*time.Second, cfg.JanitorInterval)
	require.Equal(t, 10*time.Second, cfg.AcceptTimeout)
	require.InDelta(t, 100, cfg.Rate, 0)
	require.False(t, bool(cfg.Enabled))
	require.Equal(t, engines.Builtin().Names(), cfg.registry().Names())
}

// Compose passes on what is not set as empty.
func TestConfigTakesEmptyLimitsAsTheDefaults(t *testing.T) {
	t.Parallel()
	cfg, err := loadConfig([]string{
		"ROBOCO_SANDBOX_MAX=", "ROBOCO_SANDBOX_AGENT_REQUESTS=", "ROBOCO_SANDBOX_MEMORY_TOTAL=", "ROBOCO_SANDBOX_CREATES=",
		"ROBOCO_SANDBOX_PULLS=", "ROBOCO_SANDBOX_QUEUE_TIMEOUT=",
	})
	require.NoError(t, err)
	want, err := loadConfig(nil)
	require.NoError(t, err)
	require.Equal(t, want, cfg)
	require.Equal(t, []int64{0, 64, 0, 0, 3}, []int64{cfg.Max, cfg.AgentRequests, int64(cfg.MemoryTotal), int64(cfg.Creates), int64(cfg.Pulls)})
	require.Equal(t, 2*time.Minute, cfg.QueueTimeout)
}

func TestConfigReadsEveryForm(t *testing.T) {
	t.Parallel()
	cfg, err := loadConfig([]string{
		"ROBOCO_SANDBOX_DB_ENABLED=true", "ROBOCO_SANDBOX_MEMORY=1g", "ROBOCO_SANDBOX_CPUS=0.5", "ROBOCO_SANDBOX_TTL=90m",
		"ROBOCO_SANDBOX_RATE=0", "ROBOCO_SANDBOX_POSTGRES_IMAGE=pg:test", "ROBOCO_SANDBOX_REDIS_FEATURE_IMAGE=stack:test",
		"ROBOCO_SANDBOX_GRACE=", "ROBOCO_SANDBOX_URL=http://x", "ROBOCO_SANDBOX_TOKEN=t", "ROBOCO_SANDBOX_SERVICES_AVAILABLE=redis",
		"ROBOCO_SANDBOX_MAX=20", "ROBOCO_SANDBOX_AGENT_REQUESTS=8", "ROBOCO_SANDBOX_MEMORY_TOTAL=8g", "ROBOCO_SANDBOX_CREATES=3",
		"ROBOCO_SANDBOX_QUEUE_TIMEOUT=30s", "ROBOCO_DATABASE_URL=postgres://u:p@h:5432/d", "ROBOCO_TEST_DB_HOST=not-ours", "ROBOCO_SANDBOX_OWNER=lease",
		"ROBOCO_SANDBOX_PRIMED=off",
	})
	require.NoError(t, err)
	require.True(t, bool(cfg.Enabled))
	require.EqualValues(t, 1<<30, cfg.Memory)
	require.EqualValues(t, 500_000_000, cfg.CPUs)
	require.Equal(t, 90*time.Minute, cfg.TTL)
	require.Equal(t, 180*time.Second, cfg.Grace, "an empty value is the default")
	require.Zero(t, cfg.Rate)
	bus := cfg.bus(zerolog.Nop())
	require.Equal(t, []int64{20, 8}, []int64{bus.Max, bus.AgentCap})
	require.Equal(t, 30*time.Second, bus.Patience)
	w := cfg.worker(nil, nil, nil, nil, zerolog.Nop())
	require.EqualValues(t, 8<<30, w.MemoryTotal)
	require.Equal(t, 3, w.Creates)
	require.True(t, w.Unprimed)
	require.Equal(t, 30*time.Second, w.QueueTimeout)
	pg, _ := cfg.registry().Lookup("postgres")
	require.Equal(t, "pg:test", pg.Bare)
	require.Equal(t, lookup(t, "postgres").Feature, pg.Feature)
	rd, _ := cfg.registry().Lookup("redis")
	require.Equal(t, "stack:test", rd.Feature)
}

func lookup(t *testing.T, name string) engines.Engine {
	t.Helper()
	e, ok := engines.Builtin().Lookup(name)
	require.True(t, ok)
	return e
}

func TestConfigRefusesNamingTheVariable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ set, says string }{
		{"ROBOCO_SANDBOX_DB_ENABLED=yes", "neither true nor false"},
		{"ROBOCO_SANDBOX_DB_ENABLED=True", "neither true nor false"},
		{"ROBOCO_SANDBOX_DB_ENABLED=1", "neither true nor false"},
		{"ROBOCO_SANDBOX_MEMORY=lots", "not a size"},
		{"ROBOCO_SANDBOX_MEMORY=-1", "not a size"},
		{"ROBOCO_SANDBOX_MEMORY=1m", "least is 64m"},
		{"ROBOCO_SANDBOX_CPUS=0", "number of processors"},
		{"ROBOCO_SANDBOX_CPUS=NaN", "number of processors"},
		{"ROBOCO_SANDBOX_PIDS=few", "invalid syntax"},
		{"ROBOCO_SANDBOX_PIDS=1", "least is 16"},
		{"ROBOCO_SANDBOX_TTL=12", "missing unit"},
		{"ROBOCO_SANDBOX_TTL=0s", "more than nothing"},
		{"ROBOCO_SANDBOX_GRACE=-1s", "negative"},
		{"ROBOCO_SANDBOX_JANITOR_INTERVAL=0s", "more than nothing"},
		{"ROBOCO_SANDBOX_ACCEPT_TIMEOUT=-2s", "more than nothing"},
		{"ROBOCO_SANDBOX_DRAIN=-2s", "negative"},
		{"ROBOCO_SANDBOX_RETAIN=0s", "more than nothing"},
		{"ROBOCO_SANDBOX_SLOTS=0", "least is 1"},
		{"ROBOCO_SANDBOX_RATE=-1", "from 0"},
		{"ROBOCO_SANDBOX_OWNER=nobody", "none of container, lease"},
		{"ROBOCO_SANDBOX_PRIMED=true", "none of on, off"},
		{"ROBOCO_SANDBOX_PUBLISH=all", "none of none, loopback"},
		{"ROBOCO_SANDBOX_LOG_LEVEL=loud", "none of debug"},
		{"ROBOCO_SANDBOX_LOG_FORMAT=xml", "none of json"},
		{"ROBOCO_SANDBOX_LISTEN=8420", "not host:port"},
		{"ROBOCO_SANDBOX_WORKER_LISTEN=x", "not host:port"},
		{"ROBOCO_SANDBOX_CELL=Über", "is not 1 to 40"},
		{"ROBOCO_SANDBOX_POOL=mysql=2", "is no engine: write postgres, redis, mongo"},
		{"ROBOCO_SANDBOX_POOL=postgres=2,", "is no engine"},
		{"ROBOCO_SANDBOX_POOL=postgres", "not a number from 0 to 100"},
		{"ROBOCO_SANDBOX_POOL=postgres=-1", "not a number"},
		{"ROBOCO_SANDBOX_POOL=postgres=101", "not a number"},
		{"ROBOCO_SANDBOX_POOL=postgres=auto:4", "not a number"},
		{"ROBOCO_SANDBOX_POOL=postgres=auto:4-2", "not a number"},
		{"ROBOCO_SANDBOX_POOL=redis=1,redis=2", "redis is there twice"},
		{"ROBOCO_SANDBOX_MAX=-1", "negative"},
		{"ROBOCO_SANDBOX_MAX=many", "invalid syntax"},
		{"ROBOCO_SANDBOX_AGENT_REQUESTS=0", "least is 1"},
		{"ROBOCO_SANDBOX_MEMORY_TOTAL=all", "not a size"},
		{"ROBOCO_SANDBOX_CREATES=-1", "negative"},
		{"ROBOCO_SANDBOX_PULLS=0", "least is 1"},
		{"ROBOCO_SANDBOX_QUEUE_TIMEOUT=0s", "from 1s to 4m"},
		{"ROBOCO_SANDBOX_QUEUE_TIMEOUT=1h", "from 1s to 4m"},
		{"ROBOCO_SANDBOX_TLL=1h", "nearest is ROBOCO_SANDBOX_TTL"},
		{"ROBOCO_SANDBOX_MAXX=1", "no such setting"},
		{"ROBOCO_SANDBOX_POSTGRE_IMAGE=x", "nearest is ROBOCO_SANDBOX_POSTGRES_IMAGE"},
		{"ROBOCO_SANDBOX_MONGO_FEATURE_IMAGE=x", "no such setting"},
		{"ROBOCO_REDIS_URL=http://x", "must begin with redis://"},
		{"ROBOCO_REDIS_TLS_CERT=/c", "come together"},
		{"ROBOCO_SANDBOX_TLS_CERT=/c", "come together"},
		{"ROBOCO_DATABASE_URL=mysql://x", "is not of the form"},
	} {
		t.Run(c.set, func(t *testing.T) {
			t.Parallel()
			_, err := loadConfig([]string{c.set})
			var setting *settingError
			require.ErrorAs(t, err, &setting)
			name, _, _ := strings.Cut(c.set, "=")
			require.Equal(t, name, setting.Name)
			require.Contains(t, setting.Problem, c.says)
		})
	}
}

func TestConfigNamesEveryBadVariableAtOnce(t *testing.T) {
	t.Parallel()
	_, err := loadConfig([]string{"ROBOCO_SANDBOX_CPU=1", "ROBOCO_SANDBOX_MEMORY=x", "ROBOCO_SANDBOX_TTL=y"})
	for _, name := range []string{"ROBOCO_SANDBOX_CPU", "ROBOCO_SANDBOX_MEMORY", "ROBOCO_SANDBOX_TTL"} {
		require.ErrorContains(t, err, name+": ")
	}
}

func TestConfigNeverRepeatsAPassword(t *testing.T) {
	t.Parallel()
	for _, set := range []string{
		"ROBOCO_REDIS_URL=redis://u:hunter2@h:port/x", "ROBOCO_REDIS_URL=http://u:hunter2@h",
		"ROBOCO_DATABASE_URL=postgres://u:hunter2@h:port/x", "ROBOCO_DATABASE_URL=hunter2",
	} {
		_, err := loadConfig([]string{set})
		require.Error(t, err, set)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

// What the README says of each variable is what the program does.
func TestReadmeListsEveryVariable(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	row := regexp.MustCompile("(?m)^\\| `([A-Z][A-Z_]+)` \\| (.+?) \\| (.+?) \\|$")
	var documented []variable
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		documented = append(documented, variable{Name: m[1], Default: strings.Trim(m[2], "`"), About: m[3]})
	}
	want := variables()
	for i := range want {
		if want[i].Default == "" {
			want[i].Default = "none"
		}
	}
	require.Equal(t, want, documented)
}

func TestEveryVariableIsKnownOnce(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, v := range variables() {
		require.False(t, seen[v.Name], v.Name)
		require.NotEmpty(t, v.About, v.Name)
		seen[v.Name] = true
	}
	for _, e := range engines.Builtin() {
		bare, _ := e.ImageSettings()
		require.True(t, seen[bare])
	}
	require.NotErrorIs(t, errors.Join(unknownNames(map[string]string{"ROBOCO_SANDBOX_MEMORY": "x"})...), os.ErrNotExist)
}

func TestPoolSizes(t *testing.T) {
	t.Parallel()
	cfg, err := loadConfig([]string{"ROBOCO_SANDBOX_POOL=postgres=2, redis=auto,mongo=auto:0-3"})
	require.NoError(t, err)
	require.Equal(t, poolSizes{"postgres": {Floor: 2, Ceiling: 2}, "redis": {Floor: 1, Ceiling: 8}, "mongo": {Ceiling: 3}}, cfg.Pool)
	cfg, err = loadConfig(nil)
	require.NoError(t, err)
	require.Empty(t, cfg.Pool)
}
