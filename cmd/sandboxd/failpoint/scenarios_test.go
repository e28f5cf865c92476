package failpoint_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/state"
	"github.com/roboco/sandboxd/worker/workertest"
)

type container = engines.Container

type lists = map[string][]string

// scenario is something that a worker has to do. The worker is killed in the midst of it, at one point after the other.
type scenario struct {
	name     string
	services []string
	standing lists // features that the project always has
	real     bool  // on the real container engine
	slow     bool  // servers take their time and images are pulled: heartbeats, progress, waiting requests
	pool     bool  // its workers keep a container of each service ready
	// prepare makes what was there before, by a worker that nobody disturbs; act is what the worker finds at its start.
	prepare, act func(w *world)
	// live happens once the worker is up, or has died before; it is called once for each worker and must bear that.
	live func(w *world, p *process, first bool)
	env  []string // of the first worker
	ends bool     // the worker ends without being killed
	// want are the engines that live in the end; nil is the services.
	want []string
}

func none() []string { return []string{} }

func scenarios() []scenario {
	both := []string{"postgres", "redis"}
	work := func(w *world) { w.begin("T-1") }
	made := func(w *world) { w.sandbox(nil) }
	return append([]scenario{
		{name: "idle", services: both, want: none()},
		{name: "create", services: both, standing: lists{"postgres": {"vector"}}, slow: true, act: func(w *world) {
			w.begin("T-1")
			w.ask([]string{"redis"}, nil)
		}},
		{name: "twins", services: []string{"redis"}, slow: true, prepare: work, act: func(w *world) {
			w.ask(nil, nil)
			w.ask(nil, nil)
		}},
		{name: "hit", services: both, prepare: made, act: func(w *world) { w.ask(nil, nil) }},
		{name: "extend", services: []string{"postgres"}, prepare: func(w *world) { w.sandbox(lists{"postgres": {"vector"}}) }, act: func(w *world) {
			w.ask(nil, lists{"postgres": {"postgis"}})
		}},
		{name: "replace", services: both, prepare: made, act: func(w *world) { w.ask(nil, lists{"redis": {"bloom"}}) }},
		{name: "dead", services: both, prepare: made, act: func(w *world) {
			w.kill("redis", workertest.Exits)
			w.ask(nil, nil)
		}},
		{name: "end", services: both, prepare: made, act: (*world).end, want: none()},
		{name: "end and request", services: []string{"redis"}, prepare: made, act: func(w *world) {
			w.end()
			w.begin("T-1")
			w.ask(nil, nil)
		}},
		{name: "end under way", services: []string{"redis"}, slow: true, prepare: work, act: func(w *world) {
			w.ask(nil, nil, events.StateOK, events.StateStale)
		}, live: endUnderWay, want: none()},
		{name: "other task", services: []string{"redis"}, prepare: made, act: func(w *world) {
			w.begin("T-2")
			w.ask(nil, nil)
		}},
		{name: "owner gone", services: []string{"redis"}, prepare: owned, act: func(w *world) { w.sim.AgentDown(w.slug, true) }, want: none()},
		{name: "owner dies", services: []string{"redis"}, prepare: owned, live: func(w *world, p *process, _ bool) {
			if !p.hasEnded() { // the feed must stand, or nobody hears of the death
				w.awaitPass(p, "engine.events.connected#1")
			}
			w.sim.AgentDown(w.slug, true)
		}, want: none()},
		{name: "first in a container", services: []string{"redis"}, act: func(w *world) {
			w.sim.AgentUp(w.slug)
			w.begin("T-1")
			w.ask(nil, nil)
		}},
		{name: "operator's removal", services: []string{"redis"}, prepare: made, act: func(w *world) {
			w.publish("removal", events.AgentStopped, events.Stopped{Reason: "an operator"})
		}, want: none()},
		{name: "orphan", services: []string{"redis"}, prepare: made, act: func(w *world) {
			w.container("redis", "roboco-sandbox-redis-"+w.slug+"-7", true, nil)
		}},
		{name: "lost", services: both, prepare: made, act: (*world).forget},
		{name: "lost, misnamed", services: []string{"redis"}, prepare: made, act: func(w *world) {
			require.NoError(w.t, w.sim.Rename(w.t.Context(), w.sim.Containers()[0].ID, nameOf("redis", w.slug)+"-5"))
			w.forget()
		}},
		{name: "misnamed", services: []string{"redis"}, env: []string{"ROBOCO_SANDBOX_GRACE=1h"}, prepare: made, act: func(w *world) {
			require.NoError(w.t, w.sim.Rename(w.t.Context(), w.sim.Containers()[0].ID, nameOf("redis", w.slug)+"-5"))
			w.ask(nil, nil)
		}},
		{name: "taken over", services: []string{"redis"}, prepare: engaged, act: func(w *world) {
			w.container("redis", nameOf("redis", w.slug), true, nil)
			w.ask(nil, nil)
		}},
		{name: "name in use", services: []string{"redis"}, prepare: engaged, act: func(w *world) {
			w.container("redis", nameOf("redis", w.slug), true, func(l map[string]string) { l["roboco.sandbox.task"] = "T-0" })
			w.ask(nil, nil)
		}},
		{name: "stranger", services: []string{"redis"}, prepare: work, act: func(w *world) {
			w.stranger = w.sim.Stranger(nameOf("redis", w.slug))
			w.ask(nil, nil, events.StateFailed)
		}, want: none()},
		{name: "exits", services: []string{"redis"}, slow: true, prepare: work, act: func(w *world) {
			w.ask(nil, nil, events.StateFailed)
		}, live: func(w *world, _ *process, first bool) {
			if first {
				go w.killEach("redis")
			}
		}, want: none()},
		{name: "refused", services: []string{"redis"}, prepare: work, act: func(w *world) {
			w.ask([]string{"mongo"}, nil, events.StateRefused)
		}, want: none()},
		{name: "logs", services: []string{"redis"}, prepare: made, act: (*world).askLogs},
		{name: "begun from outside", services: []string{"redis"}, want: none(), act: func(w *world) {
			w.foreign("work.started", `{"task_id":"T-1","project":"p"}`)
		}},
		{name: "ended from outside", services: []string{"redis"}, want: none(), prepare: made, act: func(w *world) {
			w.foreign("work.ended", `{"verb":"i_am_done"}`)
		}},
		{name: "undecodable", services: []string{"redis"}, act: (*world).spoil, want: none()},
		{name: "owed event", services: []string{"redis"}, prepare: made, act: owed, want: none()},
		{name: "broken feed", services: []string{"redis"}, want: none(), live: func(w *world, p *process, _ bool) {
			if !p.hasEnded() {
				w.awaitPass(p, "engine.events.connected#1")
			}
			w.sim.BreakFeeds()
		}},
		{name: "probes", services: []string{"redis"}, want: none(), live: func(_ *world, p *process, _ bool) { p.probe() }},
		{name: "drain in a line", services: []string{"redis"}, env: []string{"ROBOCO_SANDBOX_MEMORY_TOTAL=64m"}, ends: true, prepare: work, act: func(w *world) {
			w.container("redis", elsewhere, true, func(l map[string]string) { l["roboco.sandbox.cell"] = elsewhere })
			w.ask(nil, nil)
		}, live: drainInLine},
		{name: "drain", services: []string{"redis"}, want: none(), ends: true, live: func(w *world, p *process, first bool) {
			if first && !p.hasEnded() {
				w.awaitPass(p, "redis.xreadgroup.before#1")
				_ = p.cmd.Process.Signal(syscall.SIGTERM)
			}
		}},
	}, poolScenarios()...)
}

// engaged has had an epoch given in this life of Redis: a container of an earlier attempt is then not a lost one.
func engaged(w *world) {
	w.sandbox(nil)
	w.undisturbed(func() {
		w.end()
		w.drained()
		w.begin("T-1")
	})
}

// owned makes a sandbox that belongs to the agent's own container.
func owned(w *world) {
	w.sim.AgentUp(w.slug)
	w.sandbox(nil)
}

// kill ends the agent's container of one engine behind everybody's back.
func (w *world) kill(engine string, how workertest.Ending) {
	for _, c := range w.sim.Containers() {
		if c.Labels["roboco.sandbox.engine"] == engine {
			require.True(w.t, w.sim.Kill(c.ID, how))
		}
	}
}

// killEach ends every container of an engine as soon as it runs, for as long as the world lasts.
func (w *world) killEach(engine string) {
	for w.t.Context().Err() == nil {
		for _, c := range w.sim.Containers() {
			if c.Labels["roboco.sandbox.engine"] == engine && c.Running {
				w.sim.Kill(c.ID, workertest.Exits)
			}
		}
		time.Sleep(time.Millisecond) // the pace of the poll
	}
}

// awaitPass waits until the process has passed a point, or has ended.
func (w *world) awaitPass(p *process, point string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool { return p.hasEnded() || slices.Contains(p.passed(), point) }, patience, 5*time.Millisecond, "%s", point)
}

// endUnderWay ends the work while the first worker has a provision under way.
func endUnderWay(w *world, p *process, first bool) {
	if !first {
		return
	}
	if !p.hasEnded() {
		w.awaitPass(p, "engine.start.after#1")
	}
	w.end()
}

// elsewhere is a container that takes the host's memory, and its cell.
const elsewhere = "elsewhere"

// drainInLine tells the first worker to end while its request waits for memory; for the second there is enough.
func drainInLine(w *world, p *process, first bool) {
	if !first {
		c, err := w.sim.Inspect(w.t.Context(), elsewhere)
		require.NoError(w.t, err)
		require.NoError(w.t, w.sim.Remove(w.t.Context(), c.ID, 0))
		return
	}
	if !p.hasEnded() {
		w.awaitPass(p, "redis.tell.after#1") // that it waits
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
	}
}

// foreign is an event that an outside choreographer puts into the stream by plain XADD.
func (w *world) foreign(typ, data string) {
	require.NoError(w.t, w.rdb.XAdd(w.t.Context(), &redis.XAddArgs{Stream: "{" + w.cell + "}:events", Values: []any{
		"specversion", "1.0", "id", "outside-1", "type", typ, "source", "outside", "subject", w.slug, "data", data,
	}}).Err())
}

// owed is an end that a gateway stored and did not live to publish, some time ago.
func owed(w *world) {
	ctx := w.t.Context()
	e := w.event("owed-1", events.WorkEnded, events.Ended{Verb: "i_am_done", TaskID: "T-1"})
	raw, err := json.Marshal(e)
	require.NoError(w.t, err)
	_, err = w.store.EndWork(ctx, w.slug, "T-1", state.Outgoing{EventID: e.ID, Event: raw})
	require.NoError(w.t, err)
	conn, err := pgx.Connect(ctx, w.db)
	require.NoError(w.t, err)
	_, err = conn.Exec(ctx, "UPDATE sandboxd.outbox SET owed_at = owed_at - interval '1 hour' WHERE published_at IS NULL")
	require.NoError(w.t, err)
	require.NoError(w.t, conn.Close(ctx))
}

// probe asks the process whether it is ready, once; one that dies meanwhile does not answer.
func (p *process) probe() {
	if p.addr == "" {
		return
	}
	c := http.Client{Timeout: patience}
	if resp, err := c.Get("http://" + p.addr + "/readyz"); err == nil {
		_ = resp.Body.Close()
	}
}
