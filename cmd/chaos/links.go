package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"
)

// link is one process's way to one store, which can be cut, slowed down or made silent for this process alone.
type link struct {
	name  string
	proxy *toxiproxy.Proxy
	mu    sync.Mutex // one fault at a time
}

// proxies is what links are made of.
func proxies() *toxiproxy.ApiServer {
	return toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
}

// newLink opens a way to a store.
func newLink(ctx context.Context, server *toxiproxy.ApiServer, name, upstream string) (*link, error) {
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	l := &link{name: name, proxy: toxiproxy.NewProxy(server, name, fmt.Sprintf("127.0.0.1:%d", port), upstream)}
	if err := l.proxy.Start(); err != nil {
		return nil, fmt.Errorf("open the link %s: %w", name, err)
	}
	return l, nil
}

func (l *link) addr() string { return l.proxy.Listen }

// cut breaks every connection and refuses new ones; mend ends it. False when another fault is at this link.
func (l *link) cut() (mend func(), ok bool) {
	if !l.mu.TryLock() {
		return nil, false
	}
	l.proxy.Stop()
	return func() {
		defer l.mu.Unlock()
		_ = l.open()
	}, true
}

// open listens again; the port is one that nobody is given by chance, but a former listener may take a moment to go.
func (l *link) open() error {
	for try := 0; ; try++ {
		err := l.proxy.Start()
		if err == nil || errors.Is(err, toxiproxy.ErrProxyAlreadyStarted) {
			return nil
		}
		if try == 50 {
			return fmt.Errorf("open the link %s again: %w", l.name, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// slow delays what comes back by so much, more or less.
func (l *link) slow(by time.Duration) (mend func(), ok bool) {
	return l.toxic(fmt.Sprintf(`{"name":"t","type":"latency","stream":"downstream","attributes":{"latency":%d,"jitter":%d}}`,
		by.Milliseconds(), by.Milliseconds()/2))
}

// silence lets calls through and drops the answers: whoever calls cannot know what became of it. Connections break at its end.
func (l *link) silence() (mend func(), ok bool) {
	return l.toxic(`{"name":"t","type":"timeout","stream":"downstream","attributes":{"timeout":0}}`)
}

func (l *link) toxic(config string) (mend func(), ok bool) {
	if !l.mu.TryLock() {
		return nil, false
	}
	if _, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(config)); err != nil {
		l.mu.Unlock()
		return nil, false
	}
	return func() {
		defer l.mu.Unlock()
		_ = l.proxy.Toxics.RemoveToxic(context.Background(), "t")
	}, true
}

// leftByLinks lets the leak check look away from what toxiproxy leaves when a link is closed over data on its way.
func leftByLinks() goleak.Option {
	return goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run")
}

func (l *link) close() { l.proxy.Stop() }

// freePort finds a port of the loopback below those that the kernel gives out, so that it can be listened on again after a pause.
func freePort(ctx context.Context) (int, error) {
	var last error
	var listen net.ListenConfig
	for range 200 {
		port := 18000 + rand.IntN(12000) //nolint:gosec // not a secret
		l, err := listen.Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return port, l.Close() //nolint:wrapcheck // it was just opened
		}
		last = err
	}
	return 0, fmt.Errorf("find a free port: %w", last)
}
