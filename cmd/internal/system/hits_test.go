package system_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/cmd/internal/system"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/events/eventstest"
	"github.com/roboco/sandboxd/worker"
	"github.com/roboco/sandboxd/worker/workertest"
)

// BenchmarkHits measures requests that find their sandbox, over HTTP: one worker and one gateway in this process, on a real
// Redis and a simulated container engine. Beside hits a second it gives what a hit costs: microseconds of processor time of
// this process, the callers' included, and of Redis.
func BenchmarkHits(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) { benchmarkHits(b, callers) })
	}
}

func benchmarkHits(b *testing.B, callers int) {
	b.Helper()
	addr := eventstest.StartRedis(b)
	rdb, _ := eventstest.Clients(b, addr)
	s := newBench(b, addr)
	tokens := make([]string, callers)
	for i := range tokens {
		tokens[i] = s.sandbox(b, fmt.Sprintf("a%d", i))
	}
	before, redisBefore := processor(b), redisProcessor(b, rdb)
	b.ResetTimer()
	var left atomic.Int64
	left.Store(int64(b.N))
	var calls sync.WaitGroup
	for _, token := range tokens {
		calls.Go(func() {
			for left.Add(-1) >= 0 {
				if err := s.hit(b.Context(), token); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	calls.Wait()
	b.StopTimer()
	n := float64(b.N)
	b.ReportMetric(n/b.Elapsed().Seconds(), "hits/s")
	b.ReportMetric(float64((processor(b)-before).Microseconds())/n, "cpu-us/hit")
	b.ReportMetric(float64((redisProcessor(b, rdb)-redisBefore).Microseconds())/n, "redis-us/hit")
}

// bench is a system with one project.
type bench struct {
	*system.System
	http *http.Client
}

func newBench(b *testing.B, addr string) *bench {
	b.Helper()
	sim := workertest.NewSim(workertest.SimConfig{Seed: 1, Jitter: time.Microsecond, ReadyFrom: time.Microsecond, ReadyTo: 2 * time.Microsecond})
	b.Cleanup(sim.Close)
	s, err := system.Start(b.Context(), system.Config{
		Redis: addr, Runtime: sim, Engines: workertest.Engines(sim), Bus: events.Config{Cell: eventstest.Cell()}, Network: "sim",
		Change: func(c *worker.Config) { c.JanitorInterval = time.Hour },
	})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, s.Stop()) })
	op, err := s.Client(s.Operator)
	require.NoError(b, err)
	_, err = op.PutProject(b.Context(), client.Project{Slug: "p", Services: []string{"postgres", "redis", "mongo"}})
	require.NoError(b, err)
	return &bench{System: s, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}}
}

// sandbox makes an agent that has one, and gives its token.
func (s *bench) sandbox(b *testing.B, slug string) (token string) {
	b.Helper()
	token, err := s.Agent(b.Context(), slug, "developer")
	require.NoError(b, err)
	chief, err := s.Agent(b.Context(), "chief-"+slug, "choreographer")
	require.NoError(b, err)
	c, err := s.Client(chief)
	require.NoError(b, err)
	_, err = c.PublishEvent(b.Context(), client.Event{
		ID: uuid.NewString(), Source: "bench", Type: "work.started", Subject: slug, Data: []byte(`{"task_id":"T-1","project":"p"}`),
	})
	require.NoError(b, err)
	require.NoError(b, s.hit(b.Context(), token))
	return token
}

// hit is one call, as any client in any language makes it.
func (s *bench) hit(ctx context.Context, token string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/api/v1/do/request_sandbox", http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := s.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && !strings.Contains(string(body), `"in_progress"`) {
		err = fmt.Errorf("HTTP %d: %s", resp.StatusCode, body)
	}
	return err
}

// processor is the processor time that this process has used.
func processor(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// redisProcessor is that of Redis.
func redisProcessor(b *testing.B, rdb *redis.Client) (used time.Duration) {
	b.Helper()
	text, err := rdb.Info(b.Context(), "cpu").Result()
	require.NoError(b, err)
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user" || name == "used_cpu_sys" {
			seconds, err := strconv.ParseFloat(value, 64)
			require.NoError(b, err)
			used += time.Duration(seconds * float64(time.Second))
		}
	}
	return used
}
