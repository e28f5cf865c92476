package main

import "time"

// times are what a run's processes are configured with. A simulated engine is fast, so everything is scaled down with it; the
// real one meets the server as it is delivered, whose lease cannot be configured.
type times struct {
	Lease     time.Duration
	ClaimIdle time.Duration
	Park      time.Duration
	Beat      time.Duration
	TTL       time.Duration // of a record
	Grace     time.Duration
	Janitor   time.Duration
	Accept    time.Duration
	Drain     time.Duration
	PoolTick  time.Duration // of the simulated engine's workers
	Attempts  int
	Quiet     time.Duration // how long agents may wait for replies when the faults are over
	Rest      time.Duration // how long everything may take to come to rest after that
}

func timesOf(engine string) times {
	if engine == engineReal {
		return times{
			Lease: 15 * time.Second, ClaimIdle: 20 * time.Second, Park: 250 * time.Millisecond, Beat: time.Second,
			TTL: 90 * time.Second, Grace: 6 * time.Second, Janitor: 3 * time.Second, Accept: 10 * time.Second, Drain: 10 * time.Second,
			Attempts: 5, Quiet: 4 * time.Minute, Rest: 4 * time.Minute,
		}
	}
	return times{
		Lease: time.Second, ClaimIdle: 1300 * time.Millisecond, Park: 100 * time.Millisecond, Beat: 300 * time.Millisecond,
		TTL: 12 * time.Second, Grace: 2 * time.Second, Janitor: 500 * time.Millisecond, Accept: 4 * time.Second, Drain: 2 * time.Second,
		PoolTick: 100 * time.Millisecond,
		Attempts: 60, // a worker dies every other second
		Quiet:    3 * time.Minute, Rest: 2 * time.Minute,
	}
}
