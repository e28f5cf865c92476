package workertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/roboco/sandboxd/engines"
)

// Errors of a simulated server.
var (
	errStarting = errors.New("the server is starting")
	errLogin    = errors.New("password authentication failed")
	errMissing  = errors.New("no such feature")
)

const addrPrefix = "sim:"

func addrOf(id string) string { return addrPrefix + id }

// Query is one exchange with a simulated server.
type Query struct {
	Addr, Password string
	Admin          bool     // Password is the administrator's
	Login          bool     // the agent's own login must have been made
	Activate       []string // make the agent's login and these active, when not nil
	Verify         []string // these must be active
}

// Wire reaches simulated servers: a Sim, or a Process that may die or be stopped on the way.
type Wire interface {
	Query(ctx context.Context, q Query) error
}

// Query talks to the server in a container. A container that does not run refuses; another password does not log in.
func (s *Sim) Query(ctx context.Context, q Query) error {
	return s.on(ctx, OpQuery, strings.TrimPrefix(q.Addr, addrPrefix), func(b *box) error { return b.query(q) })
}

func (b *box) query(q Query) error {
	password := b.Env[engines.EnvPassword]
	if q.Admin {
		password = b.Env[engines.EnvAdminPassword]
	}
	switch {
	case !b.Running:
		return fmt.Errorf("dial %s: connection refused", q.Addr)
	case b.Paused:
		return fmt.Errorf("read from %s: i/o timeout", q.Addr)
	case time.Now().Before(b.ready):
		return fmt.Errorf("dial %s: %w", q.Addr, errStarting)
	case password == "" || password != q.Password:
		return errLogin
	case q.Login && !b.prepared:
		return fmt.Errorf("%w: the role is not there", errLogin)
	}
	if q.Activate != nil {
		if len(q.Activate) > 0 && !strings.HasSuffix(b.Image, featureSuffix) {
			return fmt.Errorf("activate %v in image %s: %w", q.Activate, b.Image, errMissing)
		}
		b.prepared = true
		for _, f := range q.Activate {
			b.features[f] = true
		}
	}
	for _, f := range q.Verify {
		if !b.features[f] {
			return fmt.Errorf("%s: %w", f, errMissing)
		}
	}
	return nil
}

const featureSuffix = "-features"

// Engines is a registry of three engines like the real ones, whose servers are simulated: postgres activates features in
// place, redis does not, mongo has none.
func Engines(w Wire) engines.Registry {
	return engines.Registry{
		simEngine(w, engines.Engine{
			Name: "postgres", Short: "pg", Port: 5432, InPlace: true, User: "sandbox", Database: "sandbox",
			Features: []string{"citext", "pg_trgm", "postgis", "uuid-ossp", "vector"},
		}),
		simEngine(w, engines.Engine{
			Name: "redis", Short: "redis", Port: 6379, FeaturesAlias: "available_modules",
			Features: []string{"bloom", "json", "search"},
		}),
		simEngine(w, engines.Engine{Name: "mongo", Short: "mongo", Port: 27017, User: "sandbox", Database: "sandbox", AuthDatabase: "admin"}),
	}
}

// simEngine completes an engine; the one that activates in place has an administrator beside the agent.
func simEngine(w Wire, e engines.Engine) engines.Engine {
	admin := e.InPlace
	e.Bare, e.ReadyWithin = "sim-"+e.Name, 15*time.Second
	if len(e.Features) > 0 {
		e.Feature = e.Bare + featureSuffix
	}
	e.Describe = func(o engines.Order) engines.Spec {
		env := map[string]string{engines.EnvPassword: o.Password}
		if admin {
			env[engines.EnvAdminPassword] = o.AdminPassword
		}
		return engines.Spec{Image: o.Image, Env: env, Port: e.Port}
	}
	if admin {
		e.Primed = &engines.Primed{Files: map[string]string{"Dockerfile": "simulated"}, Describe: e.Describe}
	}
	ask := func(ctx context.Context, a engines.Access, q Query) error {
		q.Addr, q.Password, q.Admin = a.Addr, a.Password, admin && !q.Login
		if q.Admin {
			q.Password = a.AdminPassword
		}
		return w.Query(ctx, q)
	}
	e.Up = func(ctx context.Context, a engines.Access) error { return ask(ctx, a, Query{}) }
	e.Activate = func(ctx context.Context, a engines.Access, features []string) error {
		return ask(ctx, a, Query{Activate: append([]string{}, features...)})
	}
	e.Verify = func(ctx context.Context, a engines.Access, features []string) error {
		return ask(ctx, a, Query{Verify: slices.Clone(features)})
	}
	e.Probe = func(ctx context.Context, a engines.Access) error { return ask(ctx, a, Query{Login: true}) }
	e.URL = func(c engines.Credentials) string {
		return fmt.Sprintf("%s://%s:%s@%s:%d/%s", e.Name, c.User, c.Password, c.Host, c.Port, c.Database)
	}
	e.Env = func(c engines.Credentials) map[string]string {
		p := "ROBOCO_TEST_" + strings.ToUpper(e.Short)
		return map[string]string{p + "_HOST": c.Host, p + "_PORT": strconv.Itoa(c.Port), p + "_PASSWORD": c.Password}
	}
	return e
}
