package events

// Deliver lets the suite take an entry without a consumer's loops.
var Deliver = deliver

// Allowed is for the tests of the users' rules.
var Allowed = allowed
