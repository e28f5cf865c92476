package worker_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/state"
	"github.com/roboco/sandboxd/worker"
)

// lateStore answers the next read of a flag with what was stored before something else was done meanwhile.
type lateStore struct {
	state.Store
	meanwhile atomic.Pointer[func()]
}

func (l *lateStore) Flag(ctx context.Context, name string) (state.Flag, error) {
	f, err := l.Store.Flag(ctx, name)
	if meanwhile := l.meanwhile.Swap(nil); meanwhile != nil {
		(*meanwhile)()
	}
	return f, err
}

// A worker that read the switch from the store before an operator changed it neither puts the old value back nor goes by it.
func TestSwitchIsNotPutBack(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	mirror := "{" + s.bcfg.Cell + "}:flag:sandbox_db_enabled"
	on, off := true, false
	s.switchTo(&on)
	require.NoError(t, s.rdb.Del(t.Context(), mirror).Err())
	late := &lateStore{Store: s.store}
	s.worker(func(cfg *worker.Config) { cfg.Store = late })
	s.eventually(time.Minute, func() bool { return s.rdb.Exists(t.Context(), mirror).Val() == 1 }, "the worker does not mirror the switch at its start")

	change := func() { s.switchTo(&off) }
	late.meanwhile.Store(&change)
	require.NoError(t, s.rdb.Del(t.Context(), mirror).Err())
	s.refused(s.ask(s.slug("a"), nil, nil)(), 1)
	require.Nil(t, late.meanwhile.Load())
	v, err := s.bus.MasterSwitch(t.Context())
	require.NoError(t, err)
	require.Equal(t, events.SwitchOff, v)
}
