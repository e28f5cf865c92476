package events

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// failed says what was being done when a call failed. A failure of the connection, or of a server that serves nobody just
// now, is ErrUnavailable: what was asked may or may not have happened.
func failed(doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case unavailable(err):
		return fmt.Errorf("%s: %w: %w", doing, ErrUnavailable, err)
	default:
		return fmt.Errorf("%s: %w", doing, err)
	}
}

// unavailable tells a connection that failed from a command that was refused.
func unavailable(err error) bool {
	if errors.Is(err, redis.Nil) || errors.Is(err, context.Canceled) {
		return false
	}
	var refused redis.Error
	if !errors.As(err, &refused) {
		return true
	}
	for _, state := range []string{"LOADING", "READONLY", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "NOREPLICAS", "MISCONF", "BUSY ", "OOM", "ERR max number of clients"} {
		if strings.HasPrefix(refused.Error(), state) {
			return true
		}
	}
	return false
}

// noGroup says that the work stream or its consumer group is not there: a flush, or a failover to an empty server.
func noGroup(err error) bool { return err != nil && strings.HasPrefix(err.Error(), "NOGROUP") }
