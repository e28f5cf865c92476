// Package events holds what happens: the work stream and everything else that lives in Redis. Each transition of the
// protocol is one Lua script in a file of its own, so that a process may die at any line.
//
// It imports nothing of ours. Start reading at event.go, then bus.go, then publish.go, begin.go and record.go.
package events
