package events

import (
	"errors"
	"fmt"
	"net/url"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"
)

// Limits of a connection. A call that is lost is repeated, for the scripts bear it; a read that waits is not.
const (
	dialLimit = 2 * time.Second
	ioLimit   = 2 * time.Second
	retries   = 2
)

// Open makes the two clients that New wants from a URL: redis://, rediss:// or unix://. It does not dial. The errors
// repeat nothing of the URL, which holds a password.
func Open(rawURL string) (calls, blocking redis.UniversalClient, err error) {
	o, err := redis.ParseURL(rawURL)
	if err != nil {
		return nil, nil, fmt.Errorf("the Redis URL cannot be read: %w", urlProblem(rawURL))
	}
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = dialLimit, ioLimit, ioLimit
	o.DialerRetries = 1
	o.ContextTimeoutEnabled = true
	o.PoolTimeout = ioLimit
	o.MaxRetries = retries
	waiting := *o
	waiting.MaxRetries = -1
	waiting.ContextTimeoutEnabled = false // the wait is in the command
	waiting.PoolSize = max(100, 20*runtime.GOMAXPROCS(0))
	return redis.NewClient(o), redis.NewClient(&waiting), nil
}

// urlProblem says what is wrong with a URL without repeating it.
func urlProblem(rawURL string) error {
	u, err := url.Parse(rawURL)
	switch {
	case err != nil:
		return errors.New("it is not a URL")
	case u.Scheme != "redis" && u.Scheme != "rediss" && u.Scheme != "unix":
		return errors.New("it must begin with redis://, rediss:// or unix://")
	default:
		return errors.New("it must be redis://[user:password@]host:port[/database]")
	}
}
