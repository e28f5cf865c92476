package worker

import (
	"math"
	"strings"
	"sync"
	"time"
)

// halfLife is the time after which a request counts half for the demand.
const halfLife = 2 * time.Minute

// demand remembers how often the feature sets of each engine were asked for of late.
type demand struct {
	mu    sync.Mutex
	now   func() time.Time
	asked map[string]map[string]*fading // by engine, then by features
}

// fading is a count that halves every halfLife.
type fading struct {
	count float64
	at    time.Time
}

func newDemand() *demand { return &demand{now: time.Now, asked: map[string]map[string]*fading{}} }

func (f *fading) value(now time.Time) float64 {
	return f.count * math.Exp2(-now.Sub(f.at).Seconds()/halfLife.Seconds())
}

// note counts one request.
func (d *demand) note(engine string, features []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	sets := d.asked[engine]
	if sets == nil {
		sets = map[string]*fading{}
		d.asked[engine] = sets
	}
	set := strings.Join(features, ",")
	f := sets[set]
	if f == nil {
		f = &fading{at: d.now()}
		sets[set] = f
	}
	f.count, f.at = f.value(d.now())+1, d.now()
}

// weights gives what each set counts for now; what has faded away is forgotten.
func (d *demand) weights(engine string) map[string]float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := map[string]float64{}
	for set, f := range d.asked[engine] {
		v := f.value(d.now())
		if v < 0.01 {
			delete(d.asked[engine], set)
			continue
		}
		out[set] = v
	}
	return out
}

// rate is how many requests for an engine come in a second, as seen of late.
func (d *demand) rate(engine string) float64 {
	total := 0.0
	for _, v := range d.weights(engine) {
		total += v
	}
	return total * math.Ln2 / halfLife.Seconds()
}
