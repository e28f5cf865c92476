package workertest

import (
	"math/rand/v2"
	"sync"
	"time"
)

// dice is a seeded source of decisions that goroutines may share. Two dice of one seed and one stream decide alike.
type dice struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func newDice(seed, stream uint64) *dice {
	return &dice{rng: rand.New(rand.NewPCG(seed, stream))}
}

// below gives 0 to n-1; 0 when n is not positive.
func (d *dice) below(n int) int {
	if n <= 0 {
		return 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.IntN(n)
}

// once says true one time in n; never when n is 0.
func (d *dice) once(n int) bool { return n > 0 && d.below(n) == 0 }

// upTo gives a duration from 0 up to limit, in microseconds.
func (d *dice) upTo(limit time.Duration) time.Duration {
	return time.Duration(d.below(int(limit/time.Microsecond))) * time.Microsecond
}

// between gives a duration from low up to high.
func (d *dice) between(low, high time.Duration) time.Duration { return low + d.upTo(high-low) }

func pick[T any](d *dice, of []T) T { return of[d.below(len(of))] }
