package workertest

import (
	"context"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/state"
)

func TestKilledProcessHasNoEffect(t *testing.T) {
	t.Parallel()
	m, s, ctx := miniredis.RunT(t), newSim(t), t.Context()
	p := NewProcess("w")
	t.Cleanup(p.Close)
	rdb, r := p.Attach(redis.NewClient(&redis.Options{Addr: m.Addr()})), p.Runtime(s)
	registry := Engines(p.Wire(s))
	mongo, _ := registry.Lookup("mongo")
	store := p.Store(state.NewMemory(state.Catalog{Services: registry.Names(), Features: registry.Allowed()}))

	require.NoError(t, rdb.Set(ctx, "k", "1", 0).Err())
	id, err := r.Create(ctx, launch(mongo, "x", nil))
	require.NoError(t, err)
	_, err = store.SetFlag(ctx, "f", nil)
	require.NoError(t, err)

	p.Kill()
	require.ErrorIs(t, rdb.Set(ctx, "k", "2", 0).Err(), errKilled)
	_, err = rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error { pipe.Set(ctx, "k", "3", 0); return nil })
	require.ErrorIs(t, err, errKilled)
	require.ErrorIs(t, r.Remove(ctx, id, 0), engines.ErrUnavailable)
	require.ErrorIs(t, mongo.Probe(ctx, engines.Access{Addr: addrOf(id), Password: "pw-x"}), engines.ErrUnavailable)
	_, err = store.SetFlag(ctx, "f", nil)
	require.ErrorIs(t, err, state.ErrUnavailable)
	got, err := m.Get("k")
	require.NoError(t, err)
	require.Equal(t, "1", got)
	require.Len(t, s.Containers(), 1)
}

func TestKillBreaksWhatWaits(t *testing.T) {
	t.Parallel()
	m, s, ctx := miniredis.RunT(t), newSim(t), t.Context()
	p := NewProcess("w")
	t.Cleanup(p.Close)
	rdb, r := p.Attach(redis.NewClient(&redis.Options{Addr: m.Addr(), MaxRetries: -1})), p.Runtime(s)
	owner := s.AgentUp("a")
	over, connected := make(chan error, 3), make(chan struct{})
	go func() {
		over <- rdb.XRead(ctx, &redis.XReadArgs{Streams: []string{"s", "$"}, Block: time.Hour}).Err()
	}()
	go func() {
		_, err := r.WaitExit(ctx, owner[:64])
		over <- err
	}()
	go func() { over <- r.Events(ctx, func() { close(connected) }, func(engines.Event) {}) }()
	<-connected
	p.Kill()
	for range 3 {
		require.ErrorIs(t, <-over, errKilled)
	}
}

func TestStoppedProcessGoesOn(t *testing.T) {
	t.Parallel()
	m, s, ctx := miniredis.RunT(t), newSim(t), t.Context()
	p := NewProcess("w")
	t.Cleanup(p.Close)
	rdb, r := p.Attach(redis.NewClient(&redis.Options{Addr: m.Addr()})), p.Runtime(s)
	const stop = 50 * time.Millisecond
	began := time.Now()
	p.Stop(stop)
	p.Stop(stop / 10) // the longer one counts
	require.NoError(t, rdb.Set(ctx, "k", "1", 0).Err())
	require.NoError(t, r.Ping(ctx))
	require.GreaterOrEqual(t, time.Since(began), stop, "nothing passes while it is stopped")
	require.NoError(t, r.Ping(ctx))
}

func TestKilledWhileStopped(t *testing.T) {
	t.Parallel()
	s := newSim(t)
	p := NewProcess("w")
	r, over := p.Runtime(s), make(chan error, 1)
	p.Stop(time.Hour)
	go func() { over <- r.Ping(context.Background()) }()
	p.Kill()
	require.ErrorIs(t, <-over, errKilled)
	p.Close()
}
