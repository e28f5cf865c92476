package verbs

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/roboco/sandboxd/events"
)

// metrics of one gateway. No label comes from a caller.
type metrics struct {
	requests *prometheus.CounterVec   // verb, outcome
	seconds  *prometheus.HistogramVec // verb, outcome
	calls    *prometheus.HistogramVec // call, method, status
	handler  http.Handler
}

func newMetrics(reg *prometheus.Registry, bus *events.Bus) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sandboxd_requests_total", Help: "Calls of verbs, by verb and outcome.",
		}, []string{"verb", "outcome"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sandboxd_request_seconds", Help: "From the call of a verb to its answer, by verb and outcome.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1080},
		}, []string{"verb", "outcome"}),
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sandboxd_http_call_seconds", Help: "HTTP calls, by route, method and status.",
			Buckets: []float64{.001, .005, .025, .1, .5, 2.5, 10, 60, 1080},
		}, []string{"call", "method", "status"}),
		handler: promhttp.HandlerFor(reg, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}),
	}
	for _, c := range []prometheus.Collector{m.requests, m.seconds, m.calls, newBusCollector(bus)} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

// request counts one call of request_sandbox; took is 0 where nobody waited.
func (m *metrics) request(outcome string, took time.Duration) { m.verb(RequestSandbox, outcome, took) }

func (m *metrics) verb(verb, outcome string, took time.Duration) {
	m.requests.WithLabelValues(verb, outcome).Inc()
	if took > 0 {
		m.seconds.WithLabelValues(verb, outcome).Observe(took.Seconds())
	}
}

// observe counts one HTTP call, and the verb if it was one that ends work.
func (m *metrics) observe(c *call, method string, status int, took time.Duration) {
	m.calls.WithLabelValues(c.route, knownMethod(method), strconv.Itoa(status)).Observe(took.Seconds())
	if c.verb != "" {
		m.verb(c.verb, c.outcome, took)
	}
}

// knownMethod keeps what callers invent out of the labels.
func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return method
	default:
		return "other"
	}
}

// serveMetrics answers GET /metrics.
func (g *Gateway) serveMetrics(w http.ResponseWriter, r *http.Request, _ *call) error {
	g.metrics.handler.ServeHTTP(w, r)
	return nil
}

// gaugePatience is how long a scrape waits for Redis.
const gaugePatience = 2 * time.Second

// busCollector reads the bus's figures at each scrape; while Redis is away they are absent, and sandboxd_bus_up is 0.
type busCollector struct {
	bus                                          *events.Bus
	up, length, pending, oldest, dead, sandboxes *prometheus.Desc
	letters                                      *prometheus.Desc
}

func newBusCollector(bus *events.Bus) *busCollector {
	desc := func(name, help string) *prometheus.Desc { return prometheus.NewDesc("sandboxd_"+name, help, nil, nil) }
	return &busCollector{
		bus:       bus,
		up:        desc("bus_up", "1 while Redis answers."),
		length:    desc("stream_length", "Entries in the work stream."),
		pending:   desc("stream_pending", "Entries that a worker has and has not finished."),
		oldest:    desc("stream_lag_seconds", "Age of the oldest unfinished entry."),
		dead:      desc("dead_letters", "Dead letters: entries that could not be worked on."),
		sandboxes: desc("live_sandboxes", "Sandboxes that are recorded."),
		letters: prometheus.NewDesc("sandboxd_dead_letters_total",
			"Entries that became dead letters, by cause; put back or dropped since or not.", []string{"cause"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (b *busCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{b.up, b.length, b.pending, b.oldest, b.dead, b.sandboxes, b.letters} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (b *busCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64) { ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	ctx, cancel := context.WithTimeout(context.Background(), gaugePatience)
	defer cancel()
	g, err := b.bus.Gauges(ctx)
	if err != nil {
		gauge(b.up, 0)
		return
	}
	gauge(b.up, 1)
	gauge(b.length, float64(g.StreamLength))
	gauge(b.pending, float64(g.Pending))
	gauge(b.oldest, g.OldestPending.Seconds())
	gauge(b.dead, float64(g.DeadLetters))
	gauge(b.sandboxes, float64(g.Sandboxes))
	for cause, n := range g.Letters {
		ch <- prometheus.MustNewConstMetric(b.letters, prometheus.CounterValue, float64(n), string(cause))
	}
}
