package events

import (
	"slices"
	"strings"
)

// What each Redis user may do, as rules of ACL SETUSER. Scripts run with the rights of whoever calls them, so the lists hold
// what the scripts use too. Nobody has FLUSHALL, KEYS, SCAN, CONFIG, XTRIM or any other command that is not named.

// WorkerACL is what a worker's user may do: just the commands that it sends, on this cell's keys alone.
func WorkerACL(cell string) []string {
	return rules("~{"+cell+"}:*", both("del", "hdel", "hset", "hsetnx", "srem"),
		"hkeys", "hexists", "hincrby", "zcard", "zscore", "zremrangebyscore", "rpush", "lrange", "lrem",
		"xack", "xreadgroup", "xclaim", "xautoclaim", "xgroup|delconsumer")
}

// GatewayACL is what a gateway's user may do: just the commands that it sends, on this cell's keys alone. It publishes,
// reads replies and records, and looks after dead letters; it takes nothing from the work stream.
func GatewayACL(cell string) []string {
	return rules("~{"+cell+"}:*", both("del", "hdel", "hset", "hsetnx", "srem"), "multi", "exec")
}

// both are the commands of workers and gateways, and these.
func both(more ...string) []string {
	return append([]string{
		"ping", "hello", "info", "time", "eval", "evalsha",
		"exists", "pexpire", "pttl", "get", "set", "hget", "hgetall", "hmget", "sadd", "scard", "smembers",
		"zadd", "zrem",
		"xadd", "xdel", "xlen", "xread", "xrange", "xrevrange", "xpending", "xgroup|create", "xinfo|consumers",
	}, more...)
}

// SystemACL is what the one user of a worker and a gateway in a single process may do.
func SystemACL(cell string) []string {
	all := WorkerACL(cell)
	for _, rule := range GatewayACL(cell) {
		if !slices.Contains(all, rule) {
			all = append(all, rule)
		}
	}
	return all
}

// ChoreographerACL is what the user of an outside choreographer may do that puts its events into the work stream by itself:
// add to it, and nothing else. That is much: XADD alone can empty the stream (MAXLEN 0) or close it for ever (the largest
// ID), and no rule can forbid an argument. Whoever can should publish through the gateway instead.
func ChoreographerACL(cell string) []string {
	return rules("%W~{"+cell+"}:events", []string{"ping", "hello"}, "xadd")
}

// ReaderACL is what the Redis user of an agent is allowed that awaits its replies in Redis itself: to read its own reply
// streams, and nothing else. Where records are sealed it reads bytes that only a gateway can open.
func ReaderACL(cell, slug string) []string {
	return rules("%R~{"+cell+"}:reply:"+slug+":*", []string{"ping", "hello"}, "xread")
}

// rules begins from nothing, and allows these commands on these keys.
func rules(keys string, commands []string, more ...string) []string {
	all := []string{"resetkeys", "resetchannels", "-@all", keys}
	for _, command := range slices.Concat(commands, more) {
		all = append(all, "+"+command)
	}
	return all
}

// allowed are the commands that rules allow.
func allowed(rules []string) (commands []string) {
	for _, rule := range rules {
		if command, ok := strings.CutPrefix(rule, "+"); ok {
			commands = append(commands, command)
		}
	}
	return commands
}
