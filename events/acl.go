package events

// SystemACL is what a worker's or a gateway's Redis user must be allowed, as rules of ACL SETUSER: just the commands that
// this package sends or runs in its scripts, on this cell's keys alone.
func SystemACL(cell string) []string {
	rules := []string{"resetkeys", "resetchannels", "-@all", "~{" + cell + "}:*"}
	for _, command := range []string{
		"ping", "hello", "info", "time",
		"eval", "evalsha", "multi", "exec",
		"exists", "del", "pexpire", "pttl", "get", "set",
		"hget", "hgetall", "hmget", "hkeys", "hexists", "hset", "hsetnx", "hdel", "hincrby",
		"sadd", "srem", "scard", "smembers",
		"zadd", "zrem", "zcard", "zscore", "zremrangebyscore",
		"xadd", "xack", "xdel", "xlen", "xrange", "xrevrange", "xread", "xreadgroup", "xclaim", "xautoclaim", "xpending",
		"xgroup|create", "xgroup|delconsumer", "xinfo|consumers",
	} {
		rules = append(rules, "+"+command)
	}
	return rules
}

// ReaderACL is what the Redis user of an agent is allowed that awaits its replies in Redis itself: to read its own reply
// streams, and nothing else.
func ReaderACL(cell, slug string) []string {
	return []string{"resetkeys", "resetchannels", "-@all", "%R~{" + cell + "}:reply:" + slug + ":*", "+xread", "+ping", "+hello"}
}
