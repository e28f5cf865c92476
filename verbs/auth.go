package verbs

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/state"
)

// operatorSlug stands for the configured operator's token, which is no agent's; no agent can be made under it.
const operatorSlug = "operator"

// principal is who calls: a token says so, and nothing else.
type principal struct {
	slug string
	role string
	// agent is false for the configured operator's token: it has no work and no sandbox of its own.
	agent bool
}

// authenticate finds out whose token it is.
func (g *Gateway) authenticate(r *http.Request) (principal, error) {
	token, ok := bearer(r.Header.Get("Authorization"))
	if !ok {
		return principal{}, unauthorized("there is no bearer token")
	}
	sum := sha256.Sum256([]byte(token))
	if g.cfg.OperatorToken != "" {
		want := sha256.Sum256([]byte(g.cfg.OperatorToken))
		if subtle.ConstantTimeCompare(sum[:], want[:]) == 1 {
			return principal{slug: operatorSlug, role: RoleOperator}, nil
		}
	}
	who, generation, found := g.tokens.get(sum, time.Now())
	if found == fresh {
		return who, nil
	}
	agent, err := g.cfg.Store.AgentByToken(r.Context(), sum[:])
	switch {
	case err == nil:
		who = principal{slug: agent.Slug, role: agent.Role, agent: true}
		g.tokens.put(sum, who, generation, time.Now())
		return who, nil
	case errors.Is(err, state.ErrNotFound):
		g.tokens.drop(sum)
		return principal{}, unauthorized("the token is not known")
	case found == stale && errors.Is(err, state.ErrUnavailable):
		return who, nil
	default:
		return principal{}, fmt.Errorf("look the token up: %w", err)
	}
}

// bearer takes the token out of the header.
func bearer(header string) (string, bool) {
	scheme, token, ok := strings.Cut(header, " ")
	token = strings.TrimSpace(token)
	return token, ok && strings.EqualFold(scheme, "bearer") && token != ""
}

func unauthorized(why string) *problem {
	return &problem{
		status: http.StatusUnauthorized, code: client.CodeUnauthorized, message: "not authenticated: " + why,
		remediate: "Send the header Authorization: Bearer <token>; an operator makes tokens.",
	}
}

// newestTokens bounds the cache; past it, what was verified is not remembered.
const newestTokens = 10_000

// staleFactor: while the store is down, a token is believed this many times longer than otherwise.
const staleFactor = 15

// cacheState says how far a cached token may be trusted.
type cacheState int

const (
	unknown cacheState = iota
	stale              // while the store is down
	fresh
)

// tokenCache remembers verified tokens, by sum, for a short time.
type tokenCache struct {
	ttl time.Duration

	mu         sync.Mutex
	entries    map[[sha256.Size]byte]cachedToken
	generation uint64 // raised by each eviction: a look-up that began before it is not remembered
}

type cachedToken struct {
	who      principal
	verified time.Time
}

func newTokenCache(ttl time.Duration) *tokenCache {
	return &tokenCache{ttl: ttl, entries: map[[sha256.Size]byte]cachedToken{}}
}

// get finds a token, and the generation to give to put.
func (t *tokenCache) get(sum [sha256.Size]byte, now time.Time) (principal, uint64, cacheState) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.entries[sum]
	switch age := now.Sub(e.verified); {
	case !ok || age >= staleFactor*t.ttl:
		return principal{}, t.generation, unknown
	case age >= t.ttl:
		return e.who, t.generation, stale
	default:
		return e.who, t.generation, fresh
	}
}

// put remembers a token, unless something was evicted since get.
func (t *tokenCache) put(sum [sha256.Size]byte, who principal, generation uint64, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.entries[sum]; generation == t.generation && (known || len(t.entries) < newestTokens) {
		t.entries[sum] = cachedToken{who: who, verified: now}
	}
}

// drop forgets one token.
func (t *tokenCache) drop(sum [sha256.Size]byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.entries, sum)
}

// evict forgets every token of an agent, at once.
func (t *tokenCache) evict(slug string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.generation++
	for sum, e := range t.entries {
		if e.who.slug == slug {
			delete(t.entries, sum)
		}
	}
}

// prune forgets what is too old to be believed in any case.
func (t *tokenCache) prune(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for sum, e := range t.entries {
		if now.Sub(e.verified) >= staleFactor*t.ttl {
			delete(t.entries, sum)
		}
	}
}
