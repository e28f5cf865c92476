package events

import "github.com/redis/go-redis/v9"

// Deliver lets the suite take an entry without a consumer's loops.
var Deliver = deliver

// Allowed is for the tests of the users' rules.
var Allowed = allowed

// The shapes of names, as expressions and as they are matched.
var (
	Shapes  = [...]string{slugShape, requestShape, gatewayShape}
	Matches = [...]func(string) bool{isSlug, isRequestID, isGateway}
)

// Along takes entries as one read of the stream brings them.
func Along(messages []redis.XMessage, consumer string) (all []Delivery, err error) {
	with := together(messages)
	for _, m := range messages {
		d, err := deliver(m, consumer)
		if err != nil {
			return nil, err
		}
		d.along = with
		all = append(all, d)
	}
	return all, nil
}

// Serves says that a gateway's notices are being read here.
func (b *Bus) Serves(gateway string) bool { return b.inbox.serves(gateway) }
