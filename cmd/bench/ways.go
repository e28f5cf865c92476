package main

import "github.com/roboco/sandboxd/worker"

// Names of the ways in which a sandbox comes about, peers last.
const (
	upstream       = "upstream"
	primed         = "primed"
	pooled         = "pooled"
	hit            = "hit"
	testcontainers = "testcontainers"
	dockertest     = "dockertest"
	replaced       = "replaced"
)

// way is one in which sandboxd may come to the containers that it has not yet.
type way struct {
	name   string
	change func(*worker.Config)
	primed bool           // engines that can be primed are started primed
	pool   map[string]int // containers kept ready, by engine
}

func ways() []way {
	return []way{
		{name: upstream, change: func(c *worker.Config) { c.Unprimed = true }},
		primedWay(),
		poolWay(),
	}
}

func primedWay() way { return way{name: primed, primed: true, change: func(*worker.Config) {}} }

func peerNames() []string { return []string{testcontainers, dockertest, replaced} }

// wayTitle is a way as the report names it.
func wayTitle(name string) string {
	switch name {
	case upstream, primed, pooled, hit:
		return "sandboxd, " + name
	case testcontainers:
		return "testcontainers-go"
	case replaced:
		return "replaced protocol"
	}
	return name
}

// pooledSets is how many full sets the pool has ready when a crowd comes.
const pooledSets = 5

// poolWay has a pool for one set at a time. Its postgres are shared out by demand: of four, the one with vector has its own even
// where the plain one is asked for several times as often.
func poolWay() way { return pooledWay(4, 2, 2) }

// crowdWay is the way of a crowd's place.
func crowdWay() way { return pooledWay(pooledSets, pooledSets, pooledSets) }

// pooledWay keeps so many containers ready.
func pooledWay(postgres, redis, mongo int) way {
	pool := map[string]int{"postgres": postgres, "redis": redis, "mongo": mongo}
	return way{name: pooled, pool: pool, change: func(c *worker.Config) {
		c.Pool = map[string]worker.PoolSize{}
		for engine, n := range pool {
			c.Pool[engine] = worker.PoolSize{Floor: n, Ceiling: n}
		}
	}}
}
