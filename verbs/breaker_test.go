package verbs_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
)

// breaker stands between a client and a gateway, and breaks what it is told to.
type breaker struct {
	srv          *httptest.Server
	transport    *http.Transport
	refuseEvents atomic.Bool
	asked        atomic.Int64
}

func newBreaker(target string) *breaker {
	to, err := url.Parse(target)
	if err != nil {
		panic(err)
	}
	b := &breaker{transport: &http.Transport{DisableKeepAlives: true}}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		FlushInterval: -1,
		Transport:     b.transport,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) {},
	}
	b.srv = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/events") {
			b.asked.Add(1)
			if b.refuseEvents.Load() {
				http.Error(w, "<html>no such page</html>", http.StatusNotFound)
				return
			}
		}
		proxy.ServeHTTP(w, r)
	}))
	return b
}

func (b *breaker) url() string { return b.srv.URL }

// client has connections of its own: the default one's would outlive the test.
func (b *breaker) client() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
}

// cut breaks every connection that is open.
func (b *breaker) cut() { b.srv.CloseClientConnections() }

// follows is how many times events were asked for.
func (b *breaker) follows() int { return int(b.asked.Load()) }

func (b *breaker) close() {
	b.srv.CloseClientConnections()
	b.srv.Close()
	b.transport.CloseIdleConnections()
}
