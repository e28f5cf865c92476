package worker

import "github.com/prometheus/client_golang/prometheus"

// metrics of one worker. None of them carries a secret or an agent's name.
type metrics struct {
	requests    *prometheus.HistogramVec // seconds from publication to answer, by outcome
	engines     *prometheus.CounterVec   // engines handed out, by engine and outcome
	removals    *prometheus.CounterVec   // containers removed, by engine and reason
	adoptions   *prometheus.CounterVec   // containers adopted after a loss of Redis, by engine
	release     prometheus.Histogram     // seconds to remove an agent's containers
	droppedRows prometheus.Counter       // history rows that were given up
	full        *prometheus.CounterVec   // requests that met a limit, by limit
	poolReady   *prometheus.GaugeVec     // ready containers as the keeper last saw them, by engine
	claims      *prometheus.CounterVec   // claims by engine and result: ok, empty, dead
	refills     *prometheus.CounterVec   // containers made for the pools, by engine and result: ok, failed, paused
	images      *prometheus.GaugeVec     // images that projects need, by state: ready or missing
	derivations *prometheus.CounterVec   // primed images derived, by engine and outcome
	starts      *prometheus.CounterVec   // containers started of engines that can be primed, by engine and kind
}

func newMetrics(r prometheus.Registerer) *metrics {
	buckets := []float64{.002, .005, .01, .025, .05, .1, .25, .5, 1, 2, 4, 8, 16, 32, 64, 300}
	m := &metrics{
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sandboxd_provision_seconds", Help: "Time from a request's publication to its answer.", Buckets: buckets,
		}, []string{"outcome"}),
		engines: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sandboxd_engines_total", Help: "Engines handed out.",
		}, []string{"engine", "outcome"}),
		removals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sandboxd_removals_total", Help: "Containers removed, by reason.",
		}, []string{"engine", "reason"}),
		adoptions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sandboxd_adoptions_total", Help: "Containers adopted after Redis had forgotten them.",
		}, []string{"engine"}),
		release: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sandboxd_release_seconds", Help: "Time to remove an agent's containers at an end.", Buckets: buckets,
		}),
		droppedRows: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sandboxd_history_rows_dropped_total", Help: "History rows given up because the store did not take them.",
		}),
	}
	m.full = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sandboxd_full_total", Help: "Provisions refused because the place was full, by the limit that was met.",
	}, []string{"limit"})
	m.poolReady = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sandboxd_pool_ready", Help: "Ready containers that nobody has claimed, as the keeper of the host's pools last saw them.",
	}, []string{"engine"})
	m.claims = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sandboxd_claims_total", Help: "Claims of a ready container, by what came of them: ok, empty or dead.",
	}, []string{"engine", "result"})
	m.refills = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sandboxd_refills_total", Help: "Containers made for the pools, by what came of them: ok, failed, or paused for want of memory.",
	}, []string{"engine", "result"})
	m.images = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sandboxd_images", Help: "Images that opted-in projects need on this host, by state: ready, or missing.",
	}, []string{"state"})
	m.derivations = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sandboxd_derivations_total", Help: "Attempts to derive a primed image, by outcome: ok or failed.",
	}, []string{"engine", "outcome"})
	m.starts = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sandboxd_starts_total", Help: "Containers started of engines that can be primed, by kind: primed or plain.",
	}, []string{"engine", "kind"})
	if r != nil {
		r.MustRegister(m.requests, m.engines, m.removals, m.adoptions, m.release, m.droppedRows, m.full, m.poolReady, m.claims, m.refills, m.images, m.derivations, m.starts)
	}
	return m
}
