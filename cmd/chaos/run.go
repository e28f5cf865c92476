package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/state"
	"github.com/roboco/sandboxd/worker/workertest"
)

// run is one run: a whole sandboxd, agents that live on it, and faults.
type run struct {
	o      options
	times  times
	cell   string // also the beginning of every name outside
	dir    string // of sockets, removed at the end
	logs   string // of the processes' logs
	facts  *facts
	place  place
	all    []project
	faults []fault

	redis    workertest.RedisServer
	adm      *redis.Client // of the harness; no fault but Redis's own meets it
	bus      *events.Bus   // likewise
	database *database
	store    state.Store // of the harness
	toxic    *toxiproxy.ApiServer
	links    []*link
	workers  []*member
	gateway  *member
	url      string // of the gateway
	http     *http.Client

	operator, chief *client.Client
	agents          []*agent
	stranger        string

	stop      chan struct{} // closed when agents are to come to their end
	timers    sync.WaitGroup
	redisBusy sync.Mutex // one hand at Redis

	postgresBusy sync.Mutex // likewise
}

// member is one process of the system and its links to the stores.
type member struct {
	*seat
	toRedis, toPostgres *link
}

// once makes one run. The error is of the harness; what the product did wrong is in the report.
func once(ctx context.Context, o options) (rep report, err error) {
	before := goleak.IgnoreCurrent()
	r, err := newRun(ctx, o)
	if err != nil {
		return report{}, errors.Join(err, r.close(ctx))
	}
	if err := r.live(ctx); err != nil {
		return report{}, errors.Join(fmt.Errorf("%w (the processes' logs: %s)", err, r.logs), r.close(ctx))
	}
	rep, err = r.report(ctx)
	err = errors.Join(err, r.close(ctx))
	if leak := leaked(before, leftByLinks()); leak != nil {
		r.facts.bad("G1", "the harness: %v", leak)
	}
	rep.Violations = append(rep.Violations, r.late()...)
	if rep.Logs = r.logs; o.Logs == "" && len(rep.Violations) == 0 && err == nil {
		_ = os.RemoveAll(r.logs) // what is left of it harms nobody
		rep.Logs = ""
	}
	return rep, err
}

// newRun brings everything up. What it gives is to be closed, also after an error.
func newRun(ctx context.Context, o options) (*run, error) {
	r := &run{o: o, times: timesOf(o.Engine), cell: "chaos" + strings.ReplaceAll(uuid.NewString(), "-", "")[:8], facts: newFacts(), stop: make(chan struct{})}
	r.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4 * o.Agents}}
	r.faults = plan(o, r.times)
	for _, step := range []func(context.Context) error{r.openDirs, r.openPlace, r.openStores, r.openMembers, r.furnish} {
		if err := step(ctx); err != nil {
			return r, err
		}
	}
	return r, nil
}

func (r *run) openDirs(context.Context) (err error) {
	if r.dir, err = os.MkdirTemp("", r.cell+"-"); err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	if r.o.Logs == "" {
		r.logs, err = os.MkdirTemp("", r.cell+"-logs-")
	} else {
		r.logs = filepath.Join(r.o.Logs, fmt.Sprintf("%s-%s-%d-%s", r.o.Engine, r.o.Mode, r.o.Seed, r.cell))
		err = os.MkdirAll(r.logs, 0o700)
	}
	if err != nil {
		return fmt.Errorf("make the folder of the logs: %w", err)
	}
	return nil
}

func (r *run) openPlace(ctx context.Context) error {
	open := func() (place, error) { return newSimPlace(ctx, r.o.Seed, r.dir) }
	if r.o.Engine == engineReal {
		open = func() (place, error) { return newDockerPlace(ctx, r.cell, r.dir) }
	}
	p, err := open()
	if err != nil {
		return err
	}
	r.place, r.all = p, p.projects()
	return nil
}

func (r *run) openStores(ctx context.Context) (err error) {
	if r.redis, err = workertest.RedisContainer(ctx, r.cell+"-redis"); err != nil {
		return err
	}
	if r.database, err = newDatabase(ctx, r.cell+"-postgres"); err != nil {
		return err
	}
	r.adm = redis.NewClient(&redis.Options{Addr: r.redis.Addr(), PoolSize: 2*r.o.Agents + 10, MaxRetries: -1, ReadTimeout: 20 * time.Second})
	r.bus = events.New(r.adm, r.adm, r.times.bus(r.cell, zerolog.Nop()))
	r.toxic = proxies()
	if _, err := r.bus.Check(ctx); err != nil {
		return fmt.Errorf("check redis: %w", err)
	}
	migrate := r.server("migrate", r.redis.Addr(), r.database.addr())
	if out, err := migrate.CombinedOutput(); err != nil {
		return fmt.Errorf("sandboxd migrate: %w: %s", err, out)
	}
	r.store, err = state.OpenPostgres(ctx, state.PostgresConfig{URL: r.database.url(r.database.addr())})
	if err != nil {
		return fmt.Errorf("open the durable store: %w", err)
	}
	return nil
}

// live lets agents live while faults happen, and waits until nothing is under way.
func (r *run) live(ctx context.Context) error {
	living := r.liveAgents(ctx)
	telling, told := context.WithCancel(ctx)
	defer told()
	go r.tell(telling)
	if r.o.Mode != workertest.Calm {
		r.facts.setFaulty(true)
		r.place.unrest()
	}
	r.letHappen(ctx)
	r.facts.setFaulty(false)
	close(r.stop)
	r.timers.Wait()
	r.place.calm()
	select {
	case <-living:
	case <-time.After(r.times.Quiet):
		r.facts.bad("L1", "agents still wait for replies %v after the faults ended", r.times.Quiet)
		r.facts.giveUp()
		<-living
	case <-ctx.Done():
		r.facts.giveUp()
		<-living
		return fmt.Errorf("the run was called off: %w", ctx.Err())
	}
	if r.o.Mode == workertest.Flush {
		r.survive(ctx)
	}
	r.settle(ctx)
	r.endAll(ctx)
	return nil
}

// tell says every few seconds how far the run has come, and takes the audit out of Redis.
func (r *run) tell(ctx context.Context) {
	began := time.Now()
	for sleep(ctx, 5*time.Second) {
		r.readAudit(ctx)
		fmt.Fprintf(r.o.Progress, "%v: %s\n", time.Since(began).Round(time.Second), r.facts.progress())
	}
}

// readAudit takes what the scripts have written since; what was taken is cut off, so that Redis does not grow with it.
func (r *run) readAudit(ctx context.Context) {
	r.redisBusy.Lock()
	defer r.redisBusy.Unlock()
	for {
		got, err := r.adm.XRangeN(ctx, workertest.AuditKey(r.cell), r.facts.lastMark(), "+", 5000).Result()
		if err != nil || len(got) == 0 {
			return // Redis is away, or there is no more: another time
		}
		r.facts.keep(got, 0)
		r.adm.XTrimMinID(ctx, workertest.AuditKey(r.cell), got[len(got)-1].ID)
	}
}

// late gives what was found after the report was made.
func (r *run) late() []workertest.Violation {
	r.facts.mu.Lock()
	defer r.facts.mu.Unlock()
	found := r.facts.found
	r.facts.found = nil
	return found
}

// shutDown ends all processes gracefully.
func (r *run) shutDown() {
	var ends sync.WaitGroup
	for _, m := range append(r.workers[:len(r.workers):len(r.workers)], r.gateway) {
		if m != nil {
			ends.Go(func() { m.close(r.endLimit()) })
		}
	}
	ends.Wait()
	r.workers, r.gateway = nil, nil
}

// endLimit is how long a process may take to end after SIGTERM.
func (r *run) endLimit() time.Duration { return r.times.Drain + 30*time.Second }

// close takes everything away that was brought up, as far as it was.
func (r *run) close(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	r.shutDown()
	for _, l := range r.links {
		l.close()
	}
	var errs []error
	if r.place != nil {
		for _, v := range r.place.close(ctx) {
			r.facts.bad(v.Check, "%s", v.Detail)
		}
	}
	if r.adm != nil {
		errs = append(errs, r.adm.Close())
	}
	if r.redis != nil {
		errs = append(errs, r.redis.Close())
	}
	if r.store != nil {
		r.store.Close()
	}
	if r.database != nil {
		errs = append(errs, r.database.close())
	}
	r.http.CloseIdleConnections()
	_ = os.RemoveAll(r.dir) // what is left of it harms nobody
	r.facts.giveUp()
	return errors.Join(errs...)
}
