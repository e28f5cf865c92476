package failpoint_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/client"
)

// front is a gateway process of a world, and whoever calls it: when the process dies, another takes its place at the same
// address, as a supervisor would see to, and every call is made again until it is answered.
type front struct {
	w        *world
	url      string
	operator string
	first    *process
	watching sync.WaitGroup
	over     atomic.Bool
}

func (w *world) front(point string) *front {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(w.t, err)
	addr := l.Addr().String()
	require.NoError(w.t, l.Close())
	f := &front{w: w, url: "http://" + addr, operator: uuid.NewString()}
	w.env = append(w.env, "ROBOCO_SANDBOX_LISTEN="+addr, "ROBOCO_SANDBOX_OPERATOR_TOKEN="+f.operator)
	f.first = w.start("gateway", point)
	f.watching.Go(func() {
		<-f.first.ended
		if !f.over.Load() {
			next := w.start("gateway", "")
			w.t.Cleanup(func() { f.over.Store(true) })
			<-next.ended
		}
	})
	return f
}

// try makes a call until it succeeds. What is refused for good fails the test, unless it says that it was done already.
func (f *front) try(what string, call func(ctx context.Context) error, already ...int) {
	f.w.t.Helper()
	var err error
	for began := time.Now(); time.Since(began) < patience; time.Sleep(20 * time.Millisecond) {
		if err = call(f.w.t.Context()); err == nil {
			return
		}
		var refused *client.Error
		if errors.As(err, &refused) && !refused.Envelope.Retryable && refused.HTTPStatus < http.StatusInternalServerError {
			require.Contains(f.w.t, already, refused.HTTPStatus, "%s: %v", what, err)
			return
		}
	}
	require.NoError(f.w.t, err, what)
}

func (f *front) client(token string) *client.Client {
	f.w.t.Helper()
	// Each call has a connection of its own: one that was kept may lead to a gateway that is no more.
	c, err := client.New(client.Config{URL: f.url, Token: token, HTTP: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}})
	require.NoError(f.w.t, err)
	return c
}

// identity makes an agent; where it was made already and its token lost on the way, it gets another one.
func (f *front) identity(op *client.Client, agent, role string) *client.Client {
	f.w.t.Helper()
	token := ""
	f.try("make "+agent, func(ctx context.Context) error {
		made, err := op.CreateAgent(ctx, agent, role)
		if client.IsStatus(err, http.StatusConflict) {
			made, err = op.NewToken(ctx, agent)
		}
		if err == nil {
			token = made.Token
		}
		return err
	})
	return f.client(token)
}

// plain asks for a sandbox in the form that waits in one go.
func (f *front) plain(ctx context.Context, token string) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url+"/api/v1/do/request_sandbox", strings.NewReader("{}"))
	if err != nil {
		return err
	}
	q.Header.Set("Authorization", "Bearer "+token)
	return outcome(q)
}

// outcome makes a call on a connection of its own, and gives what was refused as an error.
func outcome(q *http.Request) error {
	q.Close = true
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		return err
	}
	defer func() { _ = a.Body.Close() }()
	body, err := io.ReadAll(a.Body)
	if err != nil {
		return err
	}
	var env client.Envelope
	if json.Unmarshal(body, &env) == nil && env.Failed() {
		return &client.Error{HTTPStatus: a.StatusCode, Envelope: env}
	}
	if a.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", a.Status, body)
	}
	return nil
}

// tour calls everything that a gateway answers, from the first project to the last end, and looks at what came of it.
func (f *front) tour() {
	t, op := f.w.t, f.client(f.operator)
	f.administer(op)
	dev, chief := f.identity(op, f.w.slug, "developer"), f.identity(op, "chief", "choreographer")
	f.try("begin", func(ctx context.Context) error {
		_, err := chief.PublishEvent(ctx, client.Event{
			ID: "begin-1", Source: "test", Type: "work.started", Subject: f.w.slug, Data: json.RawMessage(`{"task_id":"T-1","project":"p"}`),
		})
		return err
	})
	idle := f.identity(op, "a2", "developer") // what it works on nobody knows: the store is asked
	f.try("end of nothing", func(ctx context.Context) error { _, err := idle.EndWork(ctx, "i_am_idle", ""); return err })
	f.try("spawn", func(ctx context.Context) error { _, err := chief.Spawn(ctx, "p"); return err })
	request := func(ctx context.Context) error {
		_, err := dev.RequestSandbox(ctx, client.SandboxRequest{}, nil)
		return err
	}
	f.try("request", request)
	f.w.converged([]string{"redis"}, manyWorkers)
	token := ""
	f.try("another token", func(ctx context.Context) error {
		made, err := op.NewToken(ctx, f.w.slug)
		if err == nil {
			token = made.Token
		}
		return err
	})
	dev = f.client(token)
	f.try("plain request", func(ctx context.Context) error { return f.plain(ctx, token) })
	f.look(op, dev)
	f.letters(op)
	f.try("remove", func(ctx context.Context) error { return op.RemoveSandbox(ctx, f.w.slug) })
	f.w.converged([]string{}, manyWorkers)
	f.try("request again", request)
	f.w.converged([]string{"redis"}, manyWorkers)
	f.try("end", func(ctx context.Context) error { _, err := dev.EndWork(ctx, "i_am_done", ""); return err })
	f.try("revoke", func(ctx context.Context) error { return op.RevokeAgent(ctx, "chief") }, http.StatusNotFound)
	f.try("delete", func(ctx context.Context) error { return op.DeleteProject(ctx, "p") }, http.StatusNotFound)
	f.w.converged([]string{}, manyWorkers)
	require.Empty(t, f.w.owed(), "an event is still owed")
}

// administer makes the project, and switches.
func (f *front) administer(op *client.Client) {
	f.w.t.Helper()
	name, on := "The shop", true
	f.try("project", func(ctx context.Context) error {
		_, err := op.PutProject(ctx, client.Project{Slug: "p", Name: "p", Services: []string{"redis"}})
		return err
	})
	f.try("patch", func(ctx context.Context) error {
		_, err := op.PatchProject(ctx, "p", client.ProjectPatch{Name: &name})
		return err
	})
	f.try("projects", func(ctx context.Context) error { _, err := op.Projects(ctx); return err })
	f.try("project", func(ctx context.Context) error { _, err := op.Project(ctx, "p"); return err })
	f.try("switch", func(ctx context.Context) error { _, err := op.SetFlag(ctx, &on); return err })
	f.try("flag", func(ctx context.Context) error { _, err := op.Flag(ctx); return err })
}

// look reads what can be read while a sandbox lives.
func (f *front) look(op, dev *client.Client) {
	f.w.t.Helper()
	f.try("own", func(ctx context.Context) error { _, err := dev.Sandbox(ctx); return err })
	f.try("logs", func(ctx context.Context) error { _, err := dev.Logs(ctx, client.LogsFilter{}); return err })
	f.try("sandboxes", func(ctx context.Context) error { _, err := op.Sandboxes(ctx); return err })
	f.try("requests", func(ctx context.Context) error { _, err := op.Requests(ctx, client.HistoryFilter{}); return err })
	f.try("agents", func(ctx context.Context) error { _, err := op.Agents(ctx); return err })
	f.try("health", func(ctx context.Context) error { _, err := op.Health(ctx); return err })
	f.try("metrics", func(ctx context.Context) error {
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url+"/metrics", nil)
		if err != nil {
			return err
		}
		return outcome(q)
	})
}

// letters looks after a dead letter: an entry that nobody can read, which therefore is not put back either. The script that
// puts letters back is tried in package events; no letter of that kind comes by here.
func (f *front) letters(op *client.Client) {
	f.w.t.Helper()
	f.w.spoil()
	f.w.converged([]string{"redis"}, manyWorkers)
	id := ""
	f.try("letters", func(ctx context.Context) error {
		page, err := op.DeadLetters(ctx, "", 10)
		if err == nil && len(page.Letters) > 0 {
			id = page.Letters[0].ID
		}
		return err
	})
	f.try("letter", func(ctx context.Context) error { _, err := op.DeadLetter(ctx, id); return err })
	f.try("retry", func(ctx context.Context) error { _, err := op.RetryDeadLetter(ctx, id); return err }, http.StatusConflict)
}

// owed lists the events that are stored and not noted as published; a janitor publishes them after five seconds.
func (w *world) owed() []string {
	w.t.Helper()
	var ids []string
	require.Eventually(w.t, func() bool {
		out, err := w.store.Unpublished(w.t.Context(), 0, 0)
		ids = nil
		for _, o := range out {
			ids = append(ids, o.EventID)
		}
		return err == nil && len(ids) == 0
	}, patience, 50*time.Millisecond, "events are owed for ever")
	return ids
}

// tourWith runs the tour through a gateway that dies at the point; it gives what that gateway passed, and whether it died.
func tourWith(t *testing.T, point string) (passed []string, died bool) {
	t.Helper()
	w := newWorld(t, false)
	f := w.front(point)
	w.undisturbed(f.tour)
	w.judgePast()
	if died = point != "" && f.first.hasEnded(); died {
		require.True(t, f.first.reached(point, nil))
	}
	f.over.Store(true)
	return f.first.passed(), died
}

// A gateway is killed at every point that it passes; its callers ask again, another one answers, and all comes right.
func TestGatewayCrashMatrix(t *testing.T) {
	needContainers(t)
	binary(t)
	points, _ := tourWith(t, "")
	requireComplete(t, "gateway", names(map[string][]string{"tour": points}))
	var table results
	t.Run("killed", func(t *testing.T) {
		for _, point := range planTour(points) {
			t.Run(point, func(t *testing.T) {
				t.Parallel()
				t.Cleanup(func() { table.add(point, "tour", t) })
				for range tries {
					if _, died := tourWith(t, point); died || t.Failed() {
						return
					}
				}
				require.Fail(t, "the point was never reached", "in %d tours", tries)
			})
		}
	})
	table.show(t)
}

// planTour takes the first pass of every point, and every pass of those that change what others see.
func planTour(points []string) []string {
	return slices.DeleteFunc(slices.Clone(points), func(point string) bool {
		name, pass, _ := strings.Cut(point, "#")
		second := everything() && pass == "2" && !strings.HasPrefix(name, "redis.x") // reads that wait are a matter of chance
		return pass != "1" && !second && !strings.HasPrefix(name, "redis.publish.")
	})
}
