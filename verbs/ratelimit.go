package verbs

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/roboco/sandboxd/client"
)

// limiters hold each agent to its own rate, whatever the number of its connections.
type limiters struct {
	perSecond float64 // 0 = no limit

	mu     sync.Mutex
	agents map[string]*agentLimiter
}

type agentLimiter struct {
	*rate.Limiter

	used time.Time
}

func newLimiters(perSecond float64) *limiters {
	return &limiters{perSecond: perSecond, agents: map[string]*agentLimiter{}}
}

// take counts one call, or refuses it and says when to come back.
func (l *limiters) take(who principal) error {
	if l.perSecond <= 0 {
		return nil
	}
	now := time.Now()
	reservation := l.of(who, now).ReserveN(now, 1)
	delay := reservation.DelayFrom(now)
	if reservation.OK() && delay == 0 {
		return nil
	}
	reservation.CancelAt(now)
	return &problem{
		status: http.StatusTooManyRequests, code: client.CodeRateLimited,
		message:    fmt.Sprintf("more than %g calls a second", l.perSecond),
		remediate:  "Call less often; a request for a sandbox needs one call, which waits.",
		retryAfter: max(delay, time.Millisecond),
	}
}

// of is the agent's limiter. The configured operator is not the agent that may bear the same name.
func (l *limiters) of(who principal, now time.Time) *rate.Limiter {
	key := who.slug
	if !who.agent {
		key = "/" + key
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	a, ok := l.agents[key]
	if !ok {
		burst := max(int(2*l.perSecond), 1)
		a = &agentLimiter{Limiter: rate.NewLimiter(rate.Limit(l.perSecond), burst)}
		l.agents[key] = a
	}
	a.used = now
	return a.Limiter
}

// prune drops limiters that are full again.
func (l *limiters) prune(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, a := range l.agents {
		if now.Sub(a.used) > time.Minute && a.TokensAt(now) >= float64(a.Burst()) {
			delete(l.agents, key)
		}
	}
}
