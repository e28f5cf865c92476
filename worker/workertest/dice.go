package workertest

import (
	"math/rand/v2"
	"sync"
	"time"
)

// Dice is a seeded source of decisions that goroutines may share. Two dice of one seed and one stream decide alike.
type Dice struct {
	mu  sync.Mutex
	rng *rand.Rand
}

// NewDice makes dice of this seed and stream.
func NewDice(seed, stream uint64) *Dice {
	return &Dice{rng: rand.New(rand.NewPCG(seed, stream))}
}

// Below gives 0 to n-1; 0 when n is not positive.
func (d *Dice) Below(n int) int {
	if n <= 0 {
		return 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.IntN(n)
}

// Once says true one time in n; never when n is 0.
func (d *Dice) Once(n int) bool { return n > 0 && d.Below(n) == 0 }

// UpTo gives a duration from 0 up to limit, in microseconds.
func (d *Dice) UpTo(limit time.Duration) time.Duration {
	return time.Duration(d.Below(int(limit/time.Microsecond))) * time.Microsecond
}

// Between gives a duration from low up to high.
func (d *Dice) Between(low, high time.Duration) time.Duration { return low + d.UpTo(high-low) }

// Pick chooses one of a list that is not empty.
func Pick[T any](d *Dice, of []T) T { return of[d.Below(len(of))] }
