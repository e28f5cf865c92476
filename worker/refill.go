package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
)

const (
	// refills are the containers that are made for the pools at once.
	refills = 2
	// The pause after a refill that failed grows from the first to the most.
	refillFirst, refillMost = time.Second, time.Minute
)

// tend compares the pools with the plan: what is not wanted goes, what an earlier keeper left ready is put in, what lacks is
// made.
func (w *Worker) tend(ctx context.Context, shelves []shelf) error {
	coming := w.pool.underWay()      // before all else: what is done meanwhile is not counted twice
	stocked := map[string][]string{} // read before the listing: what is not listed is then gone
	for _, s := range shelves {
		ids, err := w.cfg.Bus.Stocked(ctx, s.pool)
		if err != nil {
			return fmt.Errorf("look into a pool: %w", err)
		}
		stocked[poolKey(s.pool)] = ids
	}
	idle, err := w.idle(ctx)
	if err != nil {
		return err
	}
	here := map[string][]engines.Container{}
	var unwanted []engines.Container
	waits := map[string]bool{}
	for _, c := range idle {
		waits[c.ID] = true
		key := poolKey(w.poolOf(c))
		switch {
		case w.pool.isYoung(c.Name):
		case w.wanted(c, shelves, stocked[key]):
			here[key] = append(here[key], c)
		default:
			unwanted = append(unwanted, c)
		}
	}
	w.retireAll(ctx, unwanted)
	ready := map[string]int{}
	for _, s := range shelves {
		in := stocked[poolKey(s.pool)]
		w.strike(ctx, s, in, waits)
		ready[s.pool.Engine] += w.tendShelf(ctx, s, in, here[poolKey(s.pool)], coming[poolKey(s.pool)])
	}
	for engine := range w.cfg.Pool {
		w.metrics.poolReady.WithLabelValues(engine).Set(float64(ready[engine]))
	}
	return nil
}

// wanted says that a container that nobody has claimed belongs to a pool of the plan, and may be handed out, now or when
// whoever is making it has done.
func (w *Worker) wanted(c engines.Container, shelves []shelf, stocked []string) bool {
	planned := slices.ContainsFunc(shelves, func(s shelf) bool { return poolKey(s.pool) == poolKey(w.poolOf(c)) })
	coming := !slices.Contains(stocked, c.ID) && time.Since(c.Created) < w.cfg.Grace
	return planned && unseen(c) && (c.Running || coming)
}

// strike takes out of a pool what does not wait there: it is gone, so that it is given to nobody, or it is somebody's, whom Redis has
// forgotten.
func (w *Worker) strike(ctx context.Context, s shelf, stocked []string, waits map[string]bool) {
	for _, id := range stocked {
		if waits[id] {
			continue
		}
		fate, err := w.cfg.Bus.Retire(ctx, s.pool, id)
		if err == nil && fate == events.FateDead {
			_, err = w.lastWord(ctx, engines.Container{ID: id, Name: id}, events.Found{})
		}
		if err != nil {
			w.cfg.Log.Debug().Err(err).Str("container", id).Msg("a container that is gone may still stand in its pool")
		}
	}
}

// tendShelf brings one pool to its size; here are its containers that nobody has claimed, and coming are
// those under way. It returns how many are ready.
func (w *Worker) tendShelf(ctx context.Context, s shelf, stocked []string, here []engines.Container, coming int) (ready int) {
	for _, c := range here {
		if slices.Contains(stocked, c.ID) || w.restock(ctx, s, c) {
			ready++
		}
	}
	if over := ready - s.want; over > 0 {
		slices.SortFunc(here, func(a, b engines.Container) int { return a.Created.Compare(b.Created) })
		return ready - w.retireAll(ctx, here[:over])
	}
	for range s.want - ready - coming {
		if !w.refill(ctx, s) {
			break
		}
	}
	return ready
}

// restock puts a container in that an earlier keeper made, if it still answers, has the features of its pool, and nobody can
// have seen its password.
func (w *Worker) restock(ctx context.Context, s shelf, c engines.Container) bool {
	c, err := w.cfg.Runtime.Inspect(ctx, c.ID)
	if err != nil {
		return false
	}
	if f, err := w.identify(ctx, c); err != nil || f.Slug != "" || !unseen(c) { // it was claimed meanwhile
		return false
	}
	_, active, answers := w.answers(ctx, s.engine, c)
	if !c.FirstLife || !answers || !covers(active, s.pool.Features) {
		if time.Since(c.Created) > w.cfg.Grace {
			w.retireAll(ctx, []engines.Container{c})
		}
		return false
	}
	in, err := w.stock(ctx, s, c.ID)
	if err == nil && !in { // somebody has retired it, and did not come to its removal
		w.retireAll(ctx, []engines.Container{c})
	}
	return in
}

// stock puts a container into its pool; it is true also where somebody else has put it in meanwhile.
func (w *Worker) stock(ctx context.Context, s shelf, id string) (bool, error) {
	in, err := w.cfg.Bus.Stock(ctx, s.pool, id)
	if err != nil || in {
		return in, err
	}
	ids, err := w.cfg.Bus.Stocked(ctx, s.pool)
	return slices.Contains(ids, id), err
}

// refill makes one more container, beside everything else, unless it is not the time for it.
func (w *Worker) refill(ctx context.Context, s shelf) bool {
	if !w.pool.begin(s) {
		return false
	}
	w.pool.makers.Go(func() {
		w.contained("a refill", func() {
			began := time.Now()
			err := w.makeReady(ctx, s)
			w.pool.end(s, err, time.Since(began))
			result := "ok"
			if err != nil {
				result = "failed"
				if errors.Is(err, errNoRoom) {
					result = "paused"
				}
			}
			w.metrics.refills.WithLabelValues(s.pool.Engine, result).Inc()
			if err != nil && ctx.Err() == nil {
				w.cfg.Log.Warn().Err(err).Str("engine", s.pool.Engine).Msg("the pool was not refilled; it is tried again")
			}
		})
		w.pool.stir()
	})
	return true
}

// errNoRoom: the host's memory is for those who ask.
var errNoRoom = errors.New("the host has no memory to spare for the pool")

// makeReady makes, proves and puts in one container.
func (w *Worker) makeReady(ctx context.Context, s shelf) error {
	e := s.engine
	leave, err := w.comeLast(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if err := w.spare(ctx, len(w.cfg.Engines)); err != nil {
		return err
	}
	l := w.launch(ctx, e, poolPrefix+e.Short+"-"+uuid.NewString()[:8], s.pool.Features, w.poolLabels(s.pool))
	w.pool.nurse(l.Name)
	defer w.pool.wean(l.Name)
	id, l, err := w.create(ctx, e, s.pool.Features, l)
	w.admission.giveBack(w.cfg.Memory) // the engine counts it by now, or it will never be
	if err != nil {
		return err
	}
	err = w.bringUp(ctx, s, l, id)
	if err != nil {
		rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleWithin)
		defer cancel()
		w.retireAll(rctx, []engines.Container{{ID: id, Name: l.Name}})
	}
	return err
}

func (w *Worker) bringUp(ctx context.Context, s shelf, l engines.Launch, id string) error {
	if err := w.cfg.Runtime.Start(ctx, id); err != nil {
		return fmt.Errorf("start %s: %w", l.Name, err)
	}
	silent := proof{w: w, tell: func(context.Context, events.Progress) {}, phase: func(string, time.Time) {}}
	w.started(s.engine, l)
	if _, err := silent.prove(ctx, s.engine, id, l, s.pool.Features); err != nil {
		w.primer.exited(l.Image, err)
		return err
	}
	in, err := w.stock(ctx, s, id)
	if err != nil {
		return fmt.Errorf("put %s into its pool: %w", l.Name, err)
	}
	if !in {
		return fmt.Errorf("%s is not wanted any more", l.Name)
	}
	return nil
}

// comeLast waits while requests are being served, for a while, and then for a turn behind all of them.
func (w *Worker) comeLast(ctx context.Context) (leave func(), err error) {
	until := time.Now().Add(w.cfg.GiveWay)
	for w.admission.runs.Load() > 0 && time.Now().Before(until) {
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return w.admission.creates.take(ctx, math.MaxUint64, 0, func(int) {})
}

// spare reserves the memory of one container, if the host then still has room for a sandbox of so many.
func (w *Worker) spare(ctx context.Context, set int) error {
	begun := w.admission.look()
	have, err := w.cfg.Runtime.Capacity(ctx)
	if err != nil {
		return fmt.Errorf("ask for the memory of the host: %w", err)
	}
	limit := cmp.Or(w.cfg.MemoryTotal, have.Memory)
	_, ok := w.admission.tryReserve(begun, w.cfg.Memory, limit, have.Committed, func(free, _ int64) bool {
		return limit == 0 || w.admission.desk.length() == 0 && w.cfg.Memory*int64(set+1) <= free
	})
	if !ok {
		return errNoRoom
	}
	return nil
}

// makeRoom takes ready containers down for a request that lacks so much memory: it comes before the pools.
func (w *Worker) makeRoom(ctx context.Context, lacking int64) bool {
	idle, err := w.idle(ctx)
	if err != nil || len(idle) == 0 {
		return false
	}
	slices.SortFunc(idle, func(a, b engines.Container) int { return b.Created.Compare(a.Created) })
	n := min(len(idle), int((lacking+w.cfg.Memory-1)/w.cfg.Memory))
	return w.retireAll(ctx, idle[:n]) > 0
}
