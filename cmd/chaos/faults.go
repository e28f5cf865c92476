package main

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/roboco/sandboxd/worker/workertest"
)

// letHappen lets the schedule happen, one fault after the other, until the time is up.
func (r *run) letHappen(ctx context.Context) {
	began := time.Now()
	kills := workertest.NewDice(r.o.Seed, 3)
	for _, f := range r.faults {
		if !sleep(ctx, max(time.Until(began.Add(f.At)), time.Microsecond)) {
			return
		}
		if time.Since(began) > r.o.Duration { // the machine is slower than the schedule
			r.facts.count("faults that came too late to happen")
			continue
		}
		if r.happen(ctx, f, kills) {
			r.facts.happened(f.Kind)
		} else {
			r.facts.count("faults that found nobody to hit")
		}
	}
	sleep(ctx, time.Until(began.Add(r.o.Duration)))
}

// happen lets one fault happen; false when there was nothing to hit.
func (r *run) happen(ctx context.Context, f fault, kills *workertest.Dice) bool {
	worker := r.workers[f.Pick%len(r.workers)]
	everybody := append(r.workers[:len(r.workers):len(r.workers)], r.gateway)
	whose := everybody[f.Pick%len(everybody)]
	switch f.Kind {
	case workerKilled:
		return worker.kill()
	case gatewayKilled:
		return r.gateway.kill()
	case workerEnded:
		return r.endOne(worker)
	case workerStopped:
		return r.lasting(f.For, worker.stop())
	case gatewayStopped:
		return r.lasting(f.For, r.gateway.stop())
	case redisCut, postgresCut, redisSlow, postgresSlow, redisSilent, postgresSilent:
		return r.breakLink(whose, f)
	case enginePaused:
		return r.lasting(f.For, r.place.pause())
	case engineSlow:
		return r.lasting(f.For, r.place.slow(f.Op, f.By))
	case engineFailing:
		return r.lasting(f.For, r.place.fail())
	case engineCut:
		r.place.cut()
		return true
	case sandboxDied:
		return r.place.killOne(kills)
	case idleDied:
		return r.place.killIdle(kills)
	case imageReplaced:
		return r.place.replaceImage(f.Pick)
	default:
		return r.breakStore(ctx, f)
	}
}

// lasting ends a fault after a while, at the latest before the run comes to rest.
func (r *run) lasting(d time.Duration, mend func()) bool {
	if mend == nil {
		return false
	}
	r.timers.Go(func() {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-r.stop:
		}
		mend()
	})
	return true
}

// endOne tells one worker to end, and sees to it that it does.
func (r *run) endOne(m *member) bool {
	gone, ok := m.end()
	if ok {
		r.timers.Go(func() {
			if !waitFor(gone, r.endLimit()) {
				r.facts.bad("R6", "%s has not ended %v after it was told to", m.name, r.endLimit())
				m.kill()
			}
		})
	}
	return ok
}

func (r *run) breakLink(m *member, f fault) bool {
	l := m.toRedis
	if f.Kind == postgresCut || f.Kind == postgresSlow || f.Kind == postgresSilent {
		l = m.toPostgres
	}
	var mend func()
	switch f.Kind {
	case redisCut, postgresCut:
		mend, _ = l.cut()
	case redisSlow, postgresSlow:
		mend, _ = l.slow(f.By)
	default:
		mend, _ = l.silence()
	}
	return r.lasting(f.For, mend)
}

// breakStore is what happens to Redis and Postgres themselves.
func (r *run) breakStore(ctx context.Context, f fault) bool {
	if f.Kind == postgresKilled {
		return r.killPostgres(ctx)
	}
	r.redisBusy.Lock()
	defer r.redisBusy.Unlock()
	switch f.Kind {
	case redisDropped:
		return r.adm.ClientKillByFilter(ctx, "TYPE", "normal", "SKIPME", "yes").Err() == nil
	case redisPaused:
		return r.adm.ClientPause(ctx, f.For).Err() == nil
	case redisKilled:
		return r.killRedis(ctx, f.For)
	case redisFlushed:
		return r.flush(ctx)
	default:
		r.facts.bad("harness", "nobody knows how to let %q happen", f.Kind)
		return false
	}
}

// killPostgres ends Postgres and starts it again, while other things happen; false when that is under way already.
func (r *run) killPostgres(ctx context.Context) bool {
	if !r.postgresBusy.TryLock() {
		return false
	}
	r.timers.Go(func() {
		defer r.postgresBusy.Unlock()
		if err := r.database.restart(ctx); err != nil {
			r.facts.bad("harness", "%v", err)
		}
	})
	return true
}

// flush empties Redis, and keeps the audit of before in the same transaction. r.redisBusy is held. The connection is a new one,
// which nothing can have broken: an answer that was lost would leave it open when Redis was emptied.
func (r *run) flush(ctx context.Context) bool {
	rdb := redis.NewClient(&redis.Options{Addr: r.redis.Addr(), MaxRetries: -1, ReadTimeout: 20 * time.Second})
	defer rdb.Close()
	var got *redis.XMessageSliceCmd
	_, err := rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		got = p.XRange(ctx, workertest.AuditKey(r.cell), r.facts.lastMark(), "+")
		p.FlushAll(ctx)
		return nil
	})
	if err != nil {
		r.facts.bad("harness", "flush redis: %v", err)
		return false
	}
	r.facts.keep(got.Val(), micros())
	return true
}

// killRedis ends Redis for a moment, and starts it with what its append-only file holds. r.redisBusy is held.
func (r *run) killRedis(ctx context.Context, away time.Duration) bool {
	// A restart that was begun is brought to its end, whatever the schedule says.
	ctx = context.WithoutCancel(ctx)
	if err := r.redis.Kill(ctx); err != nil {
		r.facts.bad("harness", "%v", err)
		return false
	}
	sleep(ctx, away)
	if err := r.redis.Start(ctx); err != nil {
		r.facts.bad("harness", "%v", err)
		return false
	}
	return true
}
