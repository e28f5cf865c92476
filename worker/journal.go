package worker

import (
	"context"
	"sync"
	"time"

	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/state"
)

// historyBacklog is how many rows may wait for the durable store; past it the newest are dropped, and counted.
const historyBacklog = 10_000

// journal gathers what the history keeps of one request.
type journal struct {
	w   *Worker
	mu  sync.Mutex
	row state.Request
}

func (w *Worker) journal(d events.Delivery, q events.Requested) *journal {
	return &journal{w: w, row: state.Request{
		ID: q.RequestID, Agent: d.Event.Subject, Role: q.Role, Host: w.host, Worker: w.cfg.Name,
		Services: q.Services, Extensions: q.Extensions, Guard: -1,
		AskedAt: d.Event.Time, Phases: map[string]int64{},
	}}
}

// phase notes how long a phase took, in milliseconds: of engines side by side the slowest.
func (j *journal) phase(name string, since time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.row.Phases[name] = max(j.row.Phases[name], time.Since(since).Milliseconds())
}

// container notes one container that the request was answered with.
func (j *journal) container(engine string, e events.Entry, o events.Outcome, t events.Tenancy) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.row.Containers = append(j.row.Containers, state.RequestContainer{
		ID: e.ID, Engine: engine, Outcome: string(o), Task: t.Task, Project: t.Project, Owner: t.Owner, Born: e.Born, Epoch: e.Epoch,
	})
	j.w.metrics.engines.WithLabelValues(engine, string(o)).Inc()
}

// done hands the row to the writer.
func (j *journal) done(outcome string, refusal *events.Refusal, t events.Tenancy) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.row.Outcome, j.row.Task, j.row.Project, j.row.DoneAt = outcome, t.Task, t.Project, time.Now().UTC()
	if refusal != nil {
		j.row.Guard, j.row.Message = refusal.Guard, refusal.Message
	}
	j.row.Phases["total"] = j.row.DoneAt.Sub(j.row.AskedAt).Milliseconds()
	j.w.metrics.requests.WithLabelValues(outcome).Observe(j.row.DoneAt.Sub(j.row.AskedAt).Seconds())
	select {
	case j.w.rows <- j.row:
	default:
		j.w.metrics.droppedRows.Inc()
	}
}

// writeHistory writes rows in batches, off the path of requests. After stop it writes what is left, once.
func (w *Worker) writeHistory(ctx context.Context, stop <-chan struct{}) {
	t := time.NewTicker(500 * time.Millisecond)
	defer t.Stop()
	var batch []state.Request
	flush := func() {
		if len(batch) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, settleWithin)
		defer cancel()
		if err := w.cfg.Store.RecordRequests(ctx, batch); err != nil {
			w.cfg.Log.Warn().Err(err).Int("rows", len(batch)).Msg("the request history is not written yet")
			if over := len(batch) - historyBacklog; over > 0 {
				w.metrics.droppedRows.Add(float64(over))
				batch = batch[over:]
			}
			return
		}
		batch = nil
	}
	for {
		select {
		case row := <-w.rows:
			batch = append(batch, row)
		case <-t.C:
			flush()
		case <-stop:
			for len(w.rows) > 0 {
				batch = append(batch, <-w.rows)
			}
			flush()
			return
		}
	}
}
