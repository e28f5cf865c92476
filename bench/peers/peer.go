package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// The limits that sandboxd gives its containers; every peer gets the same.
const (
	memory   = 512 << 20 // bytes
	nanoCPUs = 1e9
	pids     = 256
)

const (
	user     = "sandbox"
	password = "of-no-secret-at-all"
)

// limit is how long a start may take.
const limit = 2 * time.Minute

// order is one server to start.
type order struct {
	engine string // "postgres"
	image  string
	port   string // "5432/tcp"
	data   string // where its data lie, which is in memory as in sandboxd; empty for an engine that writes none
	env    map[string]string
	cmd    []string
}

// newOrder reads ENGINE=IMAGE.
func newOrder(word string) (order, error) {
	engine, image, ok := strings.Cut(word, "=")
	if !ok || image == "" {
		return order{}, fmt.Errorf("%q is not ENGINE=IMAGE", word)
	}
	o := order{engine: engine, image: image}
	switch engine {
	case "postgres":
		o.port, o.data = "5432/tcp", "/var/lib/postgresql/data"
		o.env = map[string]string{"POSTGRES_USER": user, "POSTGRES_PASSWORD": password, "POSTGRES_DB": user}
	case "redis":
		o.port, o.cmd = "6379/tcp", []string{"redis-server", "--requirepass", password}
	case "mongo":
		o.port, o.data = "27017/tcp", "/data/db"
		o.env = map[string]string{"MONGO_INITDB_ROOT_USERNAME": user, "MONGO_INITDB_ROOT_PASSWORD": password}
	default:
		return order{}, fmt.Errorf("%q is no engine", engine)
	}
	return o, nil
}

// pairs is the environment as NAME=VALUE.
func (o order) pairs() []string {
	var all []string
	for k, v := range o.env {
		all = append(all, k+"="+v)
	}
	return all
}

// peer is one way to get a database.
type peer interface {
	// start returns when the server is ready as this peer understands it. remove, nil where nothing was made, takes it away.
	start(ctx context.Context, o order) (remove func(context.Context) error, err error)
	// together says that the servers of a set are started side by side.
	together() bool
}

// measure starts a set, and removes it again, which is not counted.
func measure(ctx context.Context, p peer, set []order) (took time.Duration, err error) {
	sctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var (
		mu      sync.Mutex
		removes []func(context.Context) error
		errs    []error
		wg      sync.WaitGroup
	)
	one := func(o order) {
		remove, err := p.start(sctx, o)
		mu.Lock()
		defer mu.Unlock()
		if remove != nil {
			removes = append(removes, remove)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", o.engine, err))
		}
	}
	t := time.Now()
	for _, o := range set {
		if p.together() {
			wg.Go(func() { one(o) })
		} else {
			one(o)
		}
	}
	wg.Wait()
	took = time.Since(t)
	rctx, done := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer done()
	for _, remove := range removes {
		errs = append(errs, remove(rctx))
	}
	return took, errors.Join(errs...)
}
