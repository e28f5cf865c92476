package events

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Limits of a connection. A call that is lost is repeated, for the scripts bear it; a read that waits is not.
const (
	dialLimit = 2 * time.Second
	ioLimit   = 2 * time.Second
	retries   = 2
	// conns are the connections for calls that answer at once: many callers share few. Pipelines have pipes of their own; one
	// that finds them all in use takes one of the others.
	conns = 8
	pipes = 5
	// waits are those for reads that wait: one for a process's inbox, one for its entries, one for changes of projects. Followers
	// take the rest only while nobody reads the inbox.
	waits = 5
)

// Open makes the two clients that New wants from a URL: redis://, rediss:// or unix://. It does not dial. The errors
// repeat nothing of the URL, which holds a password.
func Open(rawURL string) (calls, blocking redis.UniversalClient, err error) {
	return OpenTLS(rawURL, nil)
}

// OpenTLS is Open with the trust and the certificate for a rediss:// URL; nil is the system's trust and no certificate.
// The host's name is verified in any case, unless the URL says skip_verify=true.
func OpenTLS(rawURL string, conf *tls.Config) (calls, blocking redis.UniversalClient, err error) {
	o, err := redis.ParseURL(rawURL)
	if err != nil {
		return nil, nil, fmt.Errorf("the Redis URL cannot be read: %w", urlProblem(rawURL))
	}
	if conf != nil && o.TLSConfig != nil {
		o.TLSConfig.RootCAs, o.TLSConfig.Certificates = conf.RootCAs, conf.Certificates
	}
	// A user with just the commands it needs may not say who it is, and would be noted as refused at each connection.
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if o.Protocol == 0 {
		o.Protocol = 2 // nothing here comes unasked: with 3 the client would look for it before each answer
	}
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = dialLimit, ioLimit, ioLimit
	o.DialerRetries = 1
	o.ContextTimeoutEnabled = true
	o.PoolTimeout = ioLimit
	if o.PoolSize == 0 {
		o.PoolSize = conns
	}
	o.PipelinePoolSize = pipes
	o.MaxRetries = retries
	waiting := *o
	waiting.MaxRetries = -1
	waiting.ContextTimeoutEnabled = false // the wait is in the command
	waiting.PoolSize = waits
	waiting.PipelinePoolSize = 1 // none is sent there, and none is the library's word for ten
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
