package events

// Deliver lets the suite take an entry without a consumer's loops.
var Deliver = deliver

// Allowed is for the tests of the users' rules.
var Allowed = allowed

// The shapes of names, as expressions and as they are matched.
var (
	Shapes  = [...]string{slugShape, requestShape, gatewayShape}
	Matches = [...]func(string) bool{isSlug, isRequestID, isGateway}
)
