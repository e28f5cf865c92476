package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/events"
)

// openMembers starts the gateway and the workers, each with links of its own to the stores.
func (r *run) openMembers(ctx context.Context) error {
	port, err := freePort(ctx)
	if err != nil {
		return err
	}
	r.url = fmt.Sprintf("http://127.0.0.1:%d", port)
	token := uuid.NewString()
	r.gateway, err = r.member(ctx, "gateway", func(redis, postgres string) *exec.Cmd {
		return r.server("gateway", redis, postgres, fmt.Sprintf("ROBOCO_SANDBOX_LISTEN=127.0.0.1:%d", port), "ROBOCO_SANDBOX_OPERATOR_TOKEN="+token)
	})
	if err != nil {
		return err
	}
	for i := range r.o.Workers {
		w, err := r.member(ctx, fmt.Sprintf("worker-%d", i+1), r.workerCommand)
		if err != nil {
			return err
		}
		r.workers = append(r.workers, w)
	}
	if r.operator, err = r.client(token); err != nil {
		return err
	}
	return r.awaitGateway(ctx)
}

func (r *run) member(ctx context.Context, name string, command func(redis, postgres string) *exec.Cmd) (*member, error) {
	var m member
	var err error
	if m.toRedis, err = newLink(ctx, r.toxic, name+" to redis", r.redis.Addr()); err != nil {
		return nil, err
	}
	r.links = append(r.links, m.toRedis)
	if m.toPostgres, err = newLink(ctx, r.toxic, name+" to postgres", r.database.addr()); err != nil {
		return nil, err
	}
	r.links = append(r.links, m.toPostgres)
	m.seat, err = seatOf(name, r.logs, r.facts, func() *exec.Cmd { return command(m.toRedis.addr(), m.toPostgres.addr()) })
	return &m, err
}

// workerCommand is one worker process, as the engine wants it.
func (r *run) workerCommand(redis, postgres string) *exec.Cmd {
	pool, _ := poolSizes(r.o.Pool) // parse has read it before
	program, args, environ := r.place.worker(simWorker{
		Redis: "redis://" + redis, Database: r.database.url(postgres), Cell: r.cell, Network: r.cell, Times: r.times, Pool: pool,
	})
	if program == "" {
		if r.o.Pool != "" {
			environ = append(environ, "ROBOCO_SANDBOX_POOL="+r.o.Pool)
		}
		return r.server("worker", redis, postgres, append(environ, "ROBOCO_SANDBOX_WORKER_LISTEN=127.0.0.1:0")...)
	}
	cmd := exec.Command(program, args...) //nolint:noctx // it outlives no context: the seat ends it
	cmd.Env = environ
	return cmd
}

// server is one command of the real server.
func (r *run) server(command, redis, postgres string, more ...string) *exec.Cmd {
	cmd := exec.Command(r.o.Sandboxd, command) //nolint:gosec,noctx // the binary to be tried; the seat ends it
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "ROBOCO_") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env,
		"ROBOCO_REDIS_URL=redis://"+redis, "ROBOCO_DATABASE_URL="+r.database.url(postgres), "ROBOCO_SANDBOX_DB_ENABLED=true",
		"ROBOCO_SANDBOX_CELL="+r.cell, "ROBOCO_SANDBOX_NETWORK="+r.cell, "ROBOCO_SANDBOX_AUDIT=true", "ROBOCO_SANDBOX_RATE=0",
		"ROBOCO_SANDBOX_ACCEPT_TIMEOUT="+r.times.Accept.String(), "ROBOCO_SANDBOX_TTL="+r.times.TTL.String(),
		"ROBOCO_SANDBOX_GRACE="+r.times.Grace.String(), "ROBOCO_SANDBOX_JANITOR_INTERVAL="+r.times.Janitor.String(),
		"ROBOCO_SANDBOX_DRAIN="+r.times.Drain.String(),
	)
	cmd.Env = append(cmd.Env, more...)
	return cmd
}

func (r *run) client(token string) (*client.Client, error) {
	return client.New(client.Config{URL: r.url, Token: token, HTTP: r.http, Timeout: 15 * time.Second})
}

func (r *run) awaitGateway(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		_, err := r.operator.Agents(ctx)
		if err == nil {
			return nil
		}
		if !sleep(ctx, 50*time.Millisecond) {
			return fmt.Errorf("wait for the gateway: %w", err)
		}
	}
}

// furnish makes what there is before anybody asks: projects, agents, a stranger under one of our names.
func (r *run) furnish(ctx context.Context) error {
	for _, p := range r.all {
		if _, err := r.operator.PutProject(ctx, client.Project{Slug: p.Slug, Name: p.Slug, Services: p.Services, Extensions: p.Extensions}); err != nil {
			return fmt.Errorf("make project %s: %w", p.Slug, err)
		}
	}
	chief, err := r.operator.CreateAgent(ctx, "chief", "choreographer")
	if err != nil {
		return fmt.Errorf("make the choreographer: %w", err)
	}
	if r.chief, err = r.client(chief.Token); err != nil {
		return err
	}
	for i := range r.o.Agents {
		a, err := r.newAgent(ctx, i)
		if err != nil {
			return err
		}
		r.agents = append(r.agents, a)
	}
	r.stranger, err = r.place.stranger(r.nameOf("mongo", r.agents[0].slug))
	return err
}

// nameOf is what the container of an agent's engine is to be called.
func (r *run) nameOf(engine, agent string) string {
	e, _ := r.place.registry().Lookup(engine)
	return "roboco-sandbox-" + e.Short + "-" + agent
}

// workEvent is an event that the choreographer publishes; its data is of our own types.
func workEvent(id string, t events.Type, slug string, data any) client.Event {
	raw, _ := json.Marshal(data) // it cannot fail
	return client.Event{ID: id, Type: string(t), Source: "chaos", Subject: slug, Data: raw}
}
