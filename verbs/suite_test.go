package verbs_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/events/eventstest"
	"github.com/roboco/sandboxd/state"
	"github.com/roboco/sandboxd/verbs"
)

func TestMain(m *testing.M) {
	// The shared Redis lives as long as the process: what feeds its container is no leak of ours.
	goleak.VerifyTestMain(settled{m}, goleak.IgnoreAnyFunction("os/exec.(*Cmd).Start.func2"))
}

// settled runs the tests and lets the Redis client's own redialling, which ends within a second of its client's, run out.
type settled struct{ *testing.M }

// Run is what goleak calls before it looks.
func (m settled) Run() int {
	code := m.M.Run()
	stacks := make([]byte, 16<<20)
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
		if !bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("pool.(*ConnPool).tryDial")) {
			break
		}
		time.Sleep(10 * time.Millisecond) // between two looks: nothing signals it
	}
	return code
}

// Who calls, in every scene. Their tokens are "<slug>-token".
const (
	dev    = "be-dev-1"
	other  = "be-dev-2"
	qa     = "be-qa-1"
	doc    = "be-doc-1"
	choreo = "choreo"
	ops    = "ops"
	// operator stands for the configured token, which is no agent's.
	operator = "operator"
)

const (
	task = "T-1"
	proj = "shop"
)

// patience bounds every wait of a test; it is never waited out unless something is wrong.
const patience = 20 * time.Second

// test is one row of a suite; the suite runs on a real Redis and on the embedded one.
type test struct {
	name string
	run  func(*scene)
}

func TestSuite(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB) string{"redis": eventstest.StartRedis, "embedded": eventstest.StartEmbedded} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr := start(t)
			for _, x := range slices.Concat(
				authTests(), requestTests(), asyncTests(), workTests(), eventTests(), projectTests(), agentTests(),
				sandboxTests(), spawnTests(), logTests(), historyTests(), flagTests(), healthTests(), inputTests(), mcpTests(), fullTests(), deadTests(),
			) {
				t.Run(x.name, func(t *testing.T) {
					t.Parallel()
					x.run(newScene(t, addr, patience))
				})
			}
		})
	}
}

// scene is a gateway over a bus with a cell of its own, the store in memory, and a stand-in for the worker.
type scene struct {
	*testing.T

	bus    *events.Bus
	store  *watchedStore
	addr   string
	url    string
	worker *standIn
	config verbs.Config
	ran    *sync.WaitGroup // what runs until the test ends
}

// hasty is a scene of its own in which nobody waits long for a worker.
func (s *scene) hasty() *scene {
	s.Helper()
	return newScene(s.T, s.addr, time.Second)
}

func newScene(t *testing.T, addr string, accept time.Duration) *scene {
	t.Helper()
	ran := &sync.WaitGroup{}
	t.Cleanup(ran.Wait) // after the clients are closed: nobody waits for a blocking read to run out
	calls, blocking := eventstest.Clients(t, addr)
	bus := events.New(calls, blocking, events.Config{
		Cell: eventstest.Cell(), Accept: accept, Park: 20 * time.Millisecond, TTL: time.Hour, Log: zerolog.Nop(),
	})
	_, err := bus.Check(t.Context())
	require.NoError(t, err)
	registry := engines.Builtin()
	s := &scene{T: t, ran: ran, addr: addr, bus: bus, store: &watchedStore{Store: state.NewMemory(state.Catalog{Services: registry.Names(), Features: registry.Allowed()})}}
	s.config = verbs.Config{
		Bus: bus, Store: s.store, Engines: registry, OperatorToken: operator + "-token", Enabled: true,
		AcceptTimeout: accept, LogsTimeout: accept, KeepAlive: 50 * time.Millisecond, ProgressEvery: 50 * time.Millisecond, Log: zerolog.Nop(),
		GatewayName: "gw-" + eventstest.Cell(),
	}
	s.url = s.serve(s.config)
	for slug, role := range map[string]string{
		dev: "developer", other: "developer", qa: "qa", doc: "documenter", choreo: "choreographer", ops: "operator",
	} {
		s.agent(slug, role)
	}
	s.worker = &standIn{bus: bus, engines: registry, password: strings.Repeat("5ec2e7", 6)[:32], made: map[string]int{}}
	t.Cleanup(s.store.Close)
	return s
}

// serve runs one more gateway, until the test ends.
func (s *scene) serve(cfg verbs.Config) string {
	s.Helper()
	gw, err := verbs.New(cfg)
	require.NoError(s, err)
	ctx, cancel := context.WithCancel(context.Background())
	s.ran.Go(func() {
		if err := gw.Run(ctx); err != nil {
			s.Errorf("run the gateway: %v", err)
		}
	})
	srv := httptest.NewServer(gw.Handler())
	s.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
		cancel()
	})
	return srv.URL
}

// forget takes all that Redis knows of this cell away.
func (s *scene) forget() {
	s.Helper()
	cell, _, _ := strings.Cut(s.bus.ReplyStream("a", "b"), "reply:")
	rdb, _ := eventstest.Clients(s.T, s.addr)
	keys, err := rdb.Keys(s.Context(), cell+"*").Result()
	require.NoError(s, err)
	require.NotEmpty(s, keys)
	require.NoError(s, rdb.Del(s.Context(), keys...).Err())
}

func (s *scene) agent(slug, role string) {
	s.Helper()
	sum := sha256.Sum256([]byte(slug + "-token"))
	_, err := s.store.CreateAgent(s.Context(), slug, role, sum[:])
	require.NoError(s, err)
}

// work starts the stand-in worker.
func (s *scene) work() {
	s.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s.Cleanup(cancel)
	s.ran.Go(func() {
		err := s.bus.Consume(ctx, events.ConsumeOptions{Name: "stand-in", Slots: 8, Drain: time.Second}, s.worker.handle)
		if err != nil && ctx.Err() == nil {
			s.Errorf("consume: %v", err)
		}
	})
}

// engage starts work for an agent, as the choreographer does.
func (s *scene) engage(slug, taskID string) {
	s.Helper()
	_, err := s.as(choreo).PublishEvent(s.Context(), client.Event{
		ID: "start-" + slug + "-" + taskID, Type: "work.started", Source: "test", Subject: slug,
		Data: encode(s, events.Started{TaskID: taskID, Project: proj, Owner: "lease"}),
	})
	require.NoError(s, err)
}

// as is a client with this agent's token.
func (s *scene) as(slug string) *client.Client {
	s.Helper()
	transport := &http.Transport{}
	s.Cleanup(transport.CloseIdleConnections)
	c, err := client.New(client.Config{URL: s.url, Token: slug + "-token", HTTP: &http.Client{Transport: transport}, Timeout: patience})
	require.NoError(s, err)
	return c
}

// answered is what came back from a plain call.
type answered struct {
	status int
	header http.Header
	body   string
	env    client.Envelope
}

// call makes a plain HTTP call as an agent ("" without a token), with header lines as "Name: value".
func (s *scene) call(slug, method, path, body string, header ...string) answered {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	require.NoError(s, err)
	if slug != "" {
		req.Header.Set("Authorization", "Bearer "+slug+"-token")
	}
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	require.NoError(s, err)
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	require.NoError(s, err)
	a := answered{status: resp.StatusCode, header: resp.Header, body: string(b)}
	_ = json.Unmarshal(b, &a.env) // not every body is an envelope
	return a
}

// refused asserts that the answer is a complete error envelope, with this status and code.
func (s *scene) refused(a answered, status int, code string) {
	s.Helper()
	require.Equal(s, status, a.status, a.body)
	require.NotNil(s, a.env.Error, a.body)
	require.Equal(s, code, *a.env.Error, a.body)
	s.complete(a.body)
	require.NotEmpty(s, a.env.Message)
	require.NotEmpty(s, a.env.Remediate)
	require.Equal(s, client.StatusError, a.env.Status)
}

// complete asserts that everything which is always present is.
func (s *scene) complete(body string) {
	s.Helper()
	var m map[string]json.RawMessage
	require.NoError(s, json.Unmarshal([]byte(body), &m), body)
	for _, name := range []string{
		"status", "task_id", "next", "evidence", "context_briefing", "error", "correlation_id", "request_id", "retryable", "retry_after_ms",
	} {
		require.Contains(s, m, name, body)
	}
	require.NotEqual(s, "null", string(m["evidence"]))
	require.NotEqual(s, `""`, string(m["correlation_id"]))
	require.NotEqual(s, `""`, string(m["request_id"]))
}

// receive takes what a channel gives, or fails after patience.
func receive[T any](s *scene, ch <-chan T) T {
	s.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		require.FailNow(s, "nothing came")
		panic("unreachable")
	}
}

// eventually polls, with a deadline.
func (s *scene) eventually(what string, ok func() bool) {
	s.Helper()
	require.Eventually(s, ok, patience, 5*time.Millisecond, what)
}

func encode(t require.TestingT, v any) json.RawMessage {
	raw, err := json.Marshal(v)
	require.NoError(t, err)
	return raw
}
