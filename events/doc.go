// Package events holds what happens: the work stream and everything else that lives in Redis. Each transition of the
// protocol is one Lua script in a file of its own, so that a process may die at any line.
//
// It imports nothing of ours. Start reading at event.go, then bus.go, then publish.go, begin.go and lease.go, each beside
// its script. prelude.lua is what all scripts share, fate.lua what revoke and adopt share; script.go puts them together.
// keys.go names the keys, acl.go the commands. Consume (consume.go, reclaim.go, drain.go) reads the work stream, Follow
// (follow.go, replies.go) the replies.
//
// Redis 7.0 or later, and the embedded miniredis, whose owner must let its TTLs run (Miniredis.ClockTTL).
package events
