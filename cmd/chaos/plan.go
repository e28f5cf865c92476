package main

import (
	"fmt"
	"hash/fnv"
	"time"

	"github.com/roboco/sandboxd/worker/workertest"
)

// fault is one thing that is to go wrong. Everything about it is decided beforehand, from the seed alone.
type fault struct {
	At   time.Duration // since the start of the faults
	Kind kind
	Pick int // which of those there are: modulo their number
	For  time.Duration
	By   time.Duration // of delays
	Op   int           // which operation of the container engine
}

// kind is what goes wrong, in words for the report.
type kind string

const (
	workerKilled   kind = "worker: SIGKILL"
	workerEnded    kind = "worker: SIGTERM"
	workerStopped  kind = "worker: SIGSTOP for more than a lease"
	gatewayKilled  kind = "gateway: SIGKILL"
	gatewayStopped kind = "gateway: SIGSTOP"
	redisCut       kind = "connection to redis cut"
	redisSlow      kind = "connection to redis delayed"
	redisSilent    kind = "connection to redis silent"
	redisDropped   kind = "redis: CLIENT KILL"
	redisPaused    kind = "redis: CLIENT PAUSE"
	redisKilled    kind = "redis: SIGKILL and restart"
	redisFlushed   kind = "redis: FLUSHALL"
	postgresCut    kind = "connection to postgres cut"
	postgresSlow   kind = "connection to postgres delayed"
	postgresSilent kind = "connection to postgres silent"
	postgresKilled kind = "postgres: SIGKILL and restart"
	enginePaused   kind = "engine paused"
	engineSlow     kind = "engine slow"
	engineFailing  kind = "engine failing"
	engineCut      kind = "engine: connections and event feeds cut"
	sandboxDied    kind = "sandbox container died"
	idleDied       kind = "idle container killed"
	imageReplaced  kind = "image replaced"
)

// Kinds that are no step of the schedule, but happen in the lives of agents.
const (
	agentDied   kind = "agent container died"
	agentSilent kind = "agent died in the midst of its calls"
	replyLapsed kind = "reply stream lapsed"
	entryBroken kind = "undecodable entry"
)

// range of a fault's length, and of a delay.
type chance struct {
	kind     kind
	weight   int
	from, to time.Duration
}

// chances are the faults of a run. Lengths fit the engine's times: a stop outlasts a lease.
func chances(o options, t times) []chance {
	ms := time.Millisecond
	all := []chance{
		{workerKilled, 14, 0, 0},
		{workerEnded, 4, 0, 0},
		{workerStopped, 12, t.Lease * 11 / 10, t.Lease * 5 / 2},
		{gatewayKilled, 4, 0, 0},
		{gatewayStopped, 2, 200 * ms, 3 * time.Second},
		{redisCut, 8, 50 * ms, 900 * ms},
		{redisSlow, 8, 300 * ms, 2 * time.Second},
		{redisSilent, 5, 200 * ms, 1500 * ms},
		{redisDropped, 4, 0, 0},
		{redisPaused, 4, 200 * ms, 1100 * ms},
		{redisKilled, 4, 0, 400 * ms},
		{postgresCut, 4, 50 * ms, 900 * ms},
		{postgresSlow, 3, 300 * ms, 2 * time.Second},
		{postgresSilent, 3, 200 * ms, 1500 * ms},
		{postgresKilled, 1, 0, 0},
		{enginePaused, 4, 100 * ms, 1500 * ms},
		{engineSlow, 6, 300 * ms, 1500 * ms},
		{engineFailing, 4, 50 * ms, 600 * ms},
		{engineCut, 2, 0, 0},
		{sandboxDied, 10, 0, 0},
	}
	if o.Pool != "" {
		all = append(all, chance{idleDied, 6, 0, 0})
		if o.Engine == engineSim { // the real images are not this run's alone
			all = append(all, chance{imageReplaced, 3, 0, 0})
		}
	}
	if o.Mode == workertest.Flush {
		all = append(all, chance{redisFlushed, 4, 0, 0})
	}
	if o.Engine == engineReal {
		for i := range all { // a stop of a lease is long here: rarer, so that not everybody is stopped
			if all[i].kind == workerStopped {
				all[i].weight = 7
			}
		}
	}
	return all
}

// plan is the whole schedule of a run.
func plan(o options, t times) []fault {
	if o.Mode == workertest.Calm {
		return nil
	}
	d, of := workertest.NewDice(o.Seed, 2), chances(o, t)
	total := 0
	for _, c := range of {
		total += c.weight
	}
	var all []fault
	for at := time.Duration(0); ; {
		at += d.Between(o.Gap/10, o.Gap)
		x := d.Below(total)
		var c chance
		for _, c = range of {
			if x -= c.weight; x < 0 {
				break
			}
		}
		f := fault{
			At: at, Kind: c.kind, Pick: d.Below(1 << 20), For: d.Between(c.from, c.to+1),
			By: d.Between(20*time.Millisecond, 400*time.Millisecond), Op: d.Below(1 << 20),
		}
		if at >= o.Duration {
			return all
		}
		all = append(all, f)
	}
}

// digest names a schedule: two runs with the same digest had the same faults to bear.
func digest(faults []fault) string {
	h := fnv.New64a()
	for _, f := range faults {
		_, _ = fmt.Fprintf(h, "%d %s %d %d %d %d\n", f.At, f.Kind, f.Pick, f.For, f.By, f.Op) // a hash takes everything
	}
	return fmt.Sprintf("%016x", h.Sum64())
}
