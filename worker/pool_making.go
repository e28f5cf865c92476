package worker

import (
	"errors"
	"maps"
	"math"
	"strings"
	"time"

	"github.com/roboco/sandboxd/engines"
)

// begin takes one of the places in which containers are made for the pools; a pool whose last refill failed waits.
func (p *pool) begin(s shelf) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	total := 0
	for _, n := range p.making {
		total += n
	}
	key := poolKey(s.pool)
	if total >= refills || time.Now().Before(p.again[key].at) {
		return false
	}
	p.making[key]++
	return true
}

// end gives the place back, and learns from what came of it.
func (p *pool) end(s shelf, err error, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := poolKey(s.pool)
	p.making[key]--
	if err == nil {
		delete(p.again, key)
		was, known := p.took[s.pool.Engine]
		if !known {
			was = took.Seconds()
		}
		p.took[s.pool.Engine] = 0.7*was + 0.3*took.Seconds()
		return
	}
	wait := min(max(2*p.again[key].wait, refillFirst), refillMost)
	if errors.Is(err, errNoRoom) {
		wait = refillFirst // it is not its fault
	}
	p.again[key] = retryAt{wait: wait, at: time.Now().Add(wait)}
}

// underWay is how many are being made, by pool.
func (p *pool) underWay() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.making)
}

// nurse notes, by its name, a container that this worker is making.
func (p *pool) nurse(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.young[name] = true
}

// wean notes that it is done with.
func (p *pool) wean(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.young, name)
}

func (p *pool) isYoung(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.young[name]
}

// size is how many ready containers of an engine the host is to have now: as many as are asked for while so many are made,
// three times over, for requests do not come evenly.
func (p *pool) size(engine string, size PoolSize) int {
	if size.Ceiling <= size.Floor {
		return size.Floor
	}
	p.mu.Lock()
	took, known := p.took[engine]
	p.mu.Unlock()
	if !known {
		took = 2
	}
	n := int(math.Ceil(p.demand.rate(engine) * took * 3))
	return min(max(n, size.Floor), size.Ceiling)
}

// unseen says that nobody can have seen a container's password: it never bore an agent's name.
func unseen(c engines.Container) bool { return strings.HasPrefix(c.Name, poolPrefix) }
