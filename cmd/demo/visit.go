package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/roboco/sandboxd/client"
)

// goneWithin is how long the tour waits for the containers to go.
const goneWithin = 30 * time.Second

// visit is what an agent does: ask, use, ask again, finish.
func (s *server) visit(ctx context.Context, g *guide) error {
	evidence, err := s.ask(ctx, g)
	if err != nil {
		return err
	}
	if err := use(ctx, g, evidence); err != nil {
		return err
	}
	if err := s.askAgain(ctx, g, evidence); err != nil {
		return err
	}
	return s.finish(ctx, g, evidence)
}

// ask calls the one verb.
func (s *server) ask(ctx context.Context, g *guide) (map[string]client.Evidence, error) {
	g.chapter("The agent calls its one verb: request_sandbox(postgres with vector and uuid-ossp, redis, mongo)")
	began := time.Now()
	env, err := s.client.RequestSandbox(ctx, client.SandboxRequest{
		Services:   []string{"postgres", "redis", "mongo"},
		Extensions: map[string][]string{"postgres": {"vector", "uuid-ossp"}},
	}, func(p client.Progress) { g.say("%6.1f s  %s", time.Since(began).Seconds(), p.Words()) })
	if err != nil {
		return nil, fmt.Errorf("request_sandbox: %w", err)
	}
	g.say("%6.1f s  answered", time.Since(began).Seconds())
	for _, name := range names(env.Evidence) {
		e := env.Evidence[name]
		g.say("%-9s %-8s %s", name, e.Outcome, strings.ReplaceAll(e.URL, e.Password, "..."))
	}
	containers, err := s.containers(ctx)
	if err != nil {
		return nil, err
	}
	g.say("the containers: %s", strings.Join(containers, ", "))
	if len(containers) != len(env.Evidence) {
		return nil, fmt.Errorf("there are %d containers for %d engines", len(containers), len(env.Evidence))
	}
	return env.Evidence, nil
}

// use writes and reads in each database, through the credentials that came back and nothing else.
func use(ctx context.Context, g *guide, evidence map[string]client.Evidence) error {
	g.chapter("The agent writes and reads in each, with the credentials it was given")
	for _, d := range []struct {
		engine string
		use    func(context.Context, client.Evidence) (string, error)
	}{{"postgres", usePostgres}, {"redis", useRedis}, {"mongo", useMongo}} {
		did, err := d.use(ctx, evidence[d.engine])
		if err != nil {
			return fmt.Errorf("use %s: %w", d.engine, err)
		}
		g.say("%-9s %s", d.engine, did)
	}
	return nil
}

// askAgain shows that asking again costs milliseconds and changes nothing.
func (s *server) askAgain(ctx context.Context, g *guide, first map[string]client.Evidence) error {
	g.chapter("It calls the verb again: the same databases, at once")
	began := time.Now()
	env, err := s.client.RequestSandbox(ctx, client.SandboxRequest{}, nil)
	if err != nil {
		return fmt.Errorf("request_sandbox again: %w", err)
	}
	took := time.Since(began)
	for _, name := range names(first) {
		if env.Evidence[name].Outcome != "reused" || env.Evidence[name].Password != first[name].Password {
			return fmt.Errorf("%s was %s, not reused as it stood", name, env.Evidence[name].Outcome)
		}
	}
	g.say("reused, same credentials, no new container: answered in %s", milliseconds(took))
	return nil
}

// finish ends the work and waits until everything is gone.
func (s *server) finish(ctx context.Context, g *guide, evidence map[string]client.Evidence) error {
	g.chapter("The agent's work ends (i_am_done), and its databases with it")
	containers, err := s.containers(ctx)
	if err != nil {
		return err
	}
	volumes, err := s.anonymousVolumes(ctx, containers)
	if err != nil {
		return err
	}
	began := time.Now()
	if _, err := s.client.EndWork(ctx, "i_am_done", ""); err != nil {
		return fmt.Errorf("i_am_done: %w", err)
	}
	g.say("answered in %s", milliseconds(time.Since(began)))
	err = eventually(ctx, goneWithin, func() (bool, error) {
		containers, err = s.containers(ctx)
		return len(containers) == 0, err
	})
	if err != nil {
		return fmt.Errorf("wait for the containers to go (%s): %w", strings.Join(containers, ", "), err)
	}
	g.say("containers gone after %s", milliseconds(time.Since(began)))
	return s.proveGone(ctx, g, evidence, volumes)
}

// proveGone checks volumes and credentials.
func (s *server) proveGone(ctx context.Context, g *guide, evidence map[string]client.Evidence, volumes []string) error {
	now, err := docker(ctx, "volume", "ls", "--quiet")
	if err != nil {
		return err
	}
	for _, v := range volumes {
		if slices.Contains(now, v) {
			return fmt.Errorf("volume %s is left", v)
		}
	}
	g.say("volumes gone (the containers had %d)", len(volumes))
	if _, err := s.client.Sandbox(ctx); !client.IsStatus(err, http.StatusNotFound) {
		return fmt.Errorf("the sandbox is still on record (%v)", err) //nolint:errorlint // it may be nil
	}
	if answers(ctx, evidence["postgres"]) {
		return errors.New("the old credentials still work")
	}
	g.say("credentials gone: no record of them, and nothing answers to them")
	_, err = s.client.RequestSandbox(ctx, client.SandboxRequest{}, nil)
	var refusal *client.Error
	if !errors.As(err, &refusal) {
		return fmt.Errorf("a request without work was not refused (%v)", err) //nolint:errorlint // it may be nil
	}
	g.say("asking now is refused, and says what to do: %s", refusal.Envelope.Remediate)
	return nil
}

// names are an evidence's engines, sorted.
func names(evidence map[string]client.Evidence) []string {
	all := make([]string, 0, len(evidence))
	for name := range evidence {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}
