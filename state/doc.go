// Package state holds what is true: projects and their opt-in, agents and their hashed tokens, engagements with the
// events they owe, the switch, and the history of requests. Two stores behave alike: Postgres, and one in memory.
//
// It imports nothing of ours. Start reading at store.go.
package state
