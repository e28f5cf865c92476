package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/events/eventstest"
	"github.com/roboco/sandboxd/state"
	"github.com/roboco/sandboxd/verbs"
	"github.com/roboco/sandboxd/worker"
	"github.com/roboco/sandboxd/worker/workertest"
)

// What a gateway with a thousand callers that wait may use.
const (
	waiters      = 1000
	mostMemory   = 150 << 20
	mostRedis    = 20 // connections
	waitersLimit = never
)

// A thousand agents wait at once at one gateway, which takes little memory and few connections for them; then a worker comes,
// and all get their answers. It is not parallel: what a thousand need at once, no other test is to starve for.
func TestManyWait(t *testing.T) {
	in := install(t)
	in.env = append(in.env, "ROBOCO_SANDBOX_ACCEPT_TIMEOUT="+waitersLimit.String(), "ROBOCO_SANDBOX_RATE=0")
	gateway, addr := in.launch("gateway", "listen")
	in.url = "http://" + addr
	tokens := in.agents(waiters)

	var answered, granted atomic.Int64
	var callers sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), waitersLimit)
	defer cancel()
	for _, token := range tokens {
		callers.Go(func() {
			body, err := in.plain(ctx, token)
			answered.Add(1)
			if err == nil && strings.Contains(body, `"in_progress"`) && strings.Contains(body, `"password"`) {
				granted.Add(1)
			} else {
				t.Errorf("%v %s", err, body)
			}
		})
	}
	rdb := redis.NewClient(&redis.Options{Addr: in.redis, PoolSize: 1})
	defer func() { _ = rdb.Close() }()
	stream := "{" + in.cell + "}:events"
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	var entries int64
	var now int
	for most := 0; ; <-look.C { // until all wait, the figures are looked at: what it takes on the way counts, too
		n, err := rdb.XLen(ctx, stream).Result()
		require.NoErrorf(t, err, "%d events, %d connections", entries, now)
		list, err := rdb.ClientList(ctx).Result()
		require.NoErrorf(t, err, "%d events, %d connections", entries, now)
		entries, now = n, strings.Count(list, "\n")-1 // this one
		most = max(most, now)
		require.Less(t, memoryOf(t, gateway.Process.Pid), mostMemory)
		if n == 2*waiters && now < mostRedis { // what began, and what is asked; a connection that broke is listed until its end is seen
			t.Logf("%d wait: %d MiB, %d connections to Redis at most", waiters, memoryOf(t, gateway.Process.Pid)>>20, most)
			break
		}
	}
	require.Zero(t, answered.Load(), "all wait")
	in.simulatedWorker()
	callers.Wait()
	require.EqualValues(t, waiters, granted.Load())
	t.Logf("answered: %d MiB", memoryOf(t, gateway.Process.Pid)>>20)
	require.Less(t, memoryOf(t, gateway.Process.Pid), mostMemory)
	in.quiet()
}

// agents makes agents that have a task of one project, and gives their tokens.
func (in *installation) agents(n int) []string {
	in.t.Helper()
	ctx, op := in.t.Context(), in.client(in.operator)
	_, err := op.PutProject(ctx, client.Project{Slug: "p", Services: []string{"redis"}})
	require.NoError(in.t, err)
	made, err := op.CreateAgent(ctx, "chief", verbs.RoleChoreographer)
	require.NoError(in.t, err)
	chief := in.client(made.Token)
	tokens := make([]string, n)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for i := range tokens {
		group.Go(func() error {
			slug := fmt.Sprintf("a%d", i)
			a, err := op.CreateAgent(ctx, slug, verbs.RoleDeveloper)
			if err != nil {
				return err
			}
			tokens[i] = a.Token
			_, err = chief.PublishEvent(ctx, client.Event{ID: "begin-" + slug, Source: "test", Type: "work.started", Subject: slug, Data: []byte(`{"task_id":"T-1","project":"p"}`)})
			return err
		})
	}
	require.NoError(in.t, group.Wait())
	return tokens
}

// plain asks for a sandbox as any client does, on a connection of its own.
func (in *installation) plain(ctx context.Context, token string) (string, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, in.url+"/api/v1/do/request_sandbox", http.NoBody)
	if err != nil {
		return "", err
	}
	q.Header.Set("Authorization", "Bearer "+token)
	q.Close = true
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		return "", err
	}
	defer func() { _ = a.Body.Close() }()
	var b bytes.Buffer
	_, err = io.Copy(&b, a.Body)
	return b.String(), err
}

// simulatedWorker is a worker in this process, whose containers are simulated: nobody wants a thousand real ones.
func (in *installation) simulatedWorker() {
	in.t.Helper()
	sim := workertest.NewSim(workertest.SimConfig{Seed: 1, Jitter: time.Millisecond, ReadyFrom: time.Millisecond, ReadyTo: 2 * time.Millisecond})
	in.t.Cleanup(sim.Close)
	registry := workertest.Engines(sim)
	var database string
	for _, kv := range in.env {
		if url, ok := strings.CutPrefix(kv, "ROBOCO_DATABASE_URL="); ok {
			database = url
		}
	}
	store, err := state.OpenPostgres(in.t.Context(), state.PostgresConfig{URL: database, Catalog: catalog(registry)})
	require.NoError(in.t, err)
	in.t.Cleanup(store.Close)
	calls, blocking := eventstest.Clients(in.t, in.redis)
	w := worker.New(worker.Config{
		Bus: events.New(calls, blocking, events.Config{Cell: in.cell, Accept: waitersLimit}), Store: store, Engines: registry, Runtime: sim,
		Roles: verbs.DefaultRoles()[verbs.RequestSandbox], Cell: in.cell, Network: "sim", Enabled: true, Creates: 32, Log: zerolog.Nop(),
	})
	ctx, stop := context.WithCancel(context.WithoutCancel(in.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	in.t.Cleanup(func() {
		stop()
		require.NoError(in.t, <-ended)
	})
}

// memoryOf is what a process holds in memory, in bytes.
func memoryOf(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmRSS:" {
			kib, err := strconv.Atoi(f[1])
			require.NoError(t, err)
			return kib << 10
		}
	}
	require.FailNow(t, "the kernel does not tell")
	return 0
}
