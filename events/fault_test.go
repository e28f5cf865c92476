package events_test

import (
	"context"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/events/eventstest"
)

// A real FLUSHALL, and a Redis that goes away, need a server of their own.

func TestFlush(t *testing.T) {
	t.Parallel()
	addr, _ := eventstest.StartOwnRedis(t)
	s := newScene(t, addr, quick())
	s.engage("container")
	run := s.provision("r-1")
	got := make(chan events.Delivery, 10)
	w := s.consume(s.bus, events.ConsumeOptions{Name: "w9", Slots: 2}, s.finishing(s.bus, got))
	s.inbox()
	require.NoError(t, s.rdb.FlushAll(t.Context()).Err())
	require.NoError(t, s.rdb.ScriptFlush(t.Context()).Err())
	flushed := time.Now()
	require.Equal(t, events.FateLost, s.revoke(found("r1", run), "", alive()))
	require.Equal(t, events.FateAdopted, s.adopt(found("r1", run), alive()))
	sb, err := s.bus.Sandbox(t.Context(), agent, false)
	require.NoError(t, err)
	require.Equal(t, "r1", sb.Engines["redis"].ID)
	s.publish(events.WorkStarted, events.Started{TaskID: task, Project: proj})
	s.arrives(got)
	t.Logf("reading again %s after the flush", time.Since(flushed))
	s.stopped(w)
}

func TestRedisGoesAway(t *testing.T) {
	t.Parallel()
	addr, stop := eventstest.StartOwnRedis(t)
	s := newScene(t, addr, quick())
	s.engage("")
	d := s.request("r-1")
	w := s.consume(s.bus, events.ConsumeOptions{Name: "w9", Slots: 2}, func(context.Context, events.Delivery) {})
	stop()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := s.bus.Begin(ctx, d, args("redis"))
	require.ErrorIs(t, err, events.ErrUnavailable)
	_, err = s.bus.Publish(ctx, s.event(events.WorkEnded, events.Ended{}))
	require.ErrorIs(t, err, events.ErrUnavailable)
	_, err = s.bus.Check(ctx)
	require.ErrorIs(t, err, events.ErrUnavailable)
	require.ErrorIs(t, s.bus.Ping(ctx), events.ErrUnavailable)
	b := s.with(func(c *events.Config) { c.Accept = time.Millisecond })
	require.ErrorIs(t, b.Follow(ctx, agent, "r-1", "", func(events.Reply) error { return nil }), events.ErrUnavailable)
	require.NoError(t, ctx.Err(), "each was answered in time")
	s.stopped(w)
}

func TestCheck(t *testing.T) {
	t.Parallel()
	addr, _ := eventstest.StartOwnRedis(t)
	calls, blocking := eventstest.Clients(t, addr)
	b := events.New(calls, blocking, events.Config{Log: zerolog.Nop()})
	warnings, err := b.Check(t.Context())
	require.NoError(t, err)
	require.Len(t, warnings, 1, "no append-only file")
	require.NoError(t, calls.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	_, err = b.Check(t.Context())
	require.ErrorContains(t, err, "noeviction")
}

// TestErrorsHoldNoSecret: not the password of the URL, nor what an event carries.
func TestErrorsHoldNoSecret(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t"
	for _, url := range []string{"redis://user:" + secret + "@127.0.0.1:1/0", "redis://user:" + secret + "@127.0.0.1:port/0", secret + "://" + secret, "redis://:" + secret + "@h/\x7f"} {
		calls, blocking, err := events.Open(url)
		if err == nil {
			defer func() { _, _ = calls.Close(), blocking.Close() }()
			err = events.New(calls, blocking, events.Config{Log: zerolog.Nop()}).Ping(t.Context())
		}
		require.Error(t, err)
		require.NotContains(t, err.Error(), secret)
	}
}

func TestNoGoroutineIsLeft(t *testing.T) {
	before := goleak.IgnoreCurrent()
	addr := eventstest.StartEmbedded(t)
	calls, blocking, err := events.Open("redis://" + addr)
	require.NoError(t, err)
	b := events.New(calls, blocking, events.Config{Cell: eventstest.Cell(), Log: zerolog.Nop()})
	_, err = b.Check(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 3)
	go func() { ended <- b.Consume(ctx, events.ConsumeOptions{Name: me, Slots: 4}, nil) }()
	go func() { ended <- b.RunInbox(ctx, "gw") }()
	go func() {
		_ = b.Follow(ctx, agent, "r", "", func(events.Reply) error { return nil })
		ended <- nil
	}()
	cancel()
	for range 3 {
		require.NoError(t, <-ended)
	}
	require.NoError(t, calls.Close())
	require.NoError(t, blocking.Close())
	goleak.VerifyNone(t, before, goleak.IgnoreAnyFunction("github.com/alicebob/miniredis/v2/server.(*Server).servePeer"),
		goleak.IgnoreAnyFunction("github.com/alicebob/miniredis/v2/server.(*Server).serve"))
}

// BenchmarkPublishToReply is the transport alone: an event goes in, a handler answers it, the caller has the reply.
func BenchmarkPublishToReply(b *testing.B) {
	addr := eventstest.StartRedis(b)
	calls, blocking := eventstest.Clients(b, addr)
	bus := events.New(calls, blocking, events.Config{Cell: eventstest.Cell(), AgentCap: 1000, Log: zerolog.Nop()})
	_, err := bus.Check(b.Context())
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan struct{}, 2)
	go func() {
		_ = bus.Consume(ctx, events.ConsumeOptions{Name: me, Slots: 16}, func(ctx context.Context, d events.Delivery) {
			_, _ = bus.AnswerBody(ctx, d, []byte(`{"lines":"none"}`))
		})
		ended <- struct{}{}
	}()
	go func() { _ = bus.RunInbox(ctx, "gw"); ended <- struct{}{} }()
	n := 0
	for b.Loop() {
		n++
		id := "r-" + time.Duration(n).String()
		_, err := bus.Publish(ctx, events.Event{ID: id, Type: events.LogsRequested, Subject: agent, Data: data(events.LogsWanted{RequestID: id, Gateway: "gw"})})
		require.NoError(b, err)
		require.NoError(b, bus.Follow(ctx, agent, id, "", func(events.Reply) error { return nil }))
	}
	cancel()
	<-ended
	<-ended
}
