package events

import "strings"

// group is the one consumer group of the work stream; parked is the consumer that holds entries which wait for a lease
// to end, or for a new reader; lined holds those that wait until a worker has room for a run. Nobody reads under these names.
const (
	group  = "workers"
	parked = "parked"
	lined  = "queued"
)

// key is a name in this cell. The hash tag keeps all of a cell's keys in one slot of a cluster.
func (b *Bus) key(name string) string { return "{" + b.cfg.Cell + "}:" + name }

func (b *Bus) stream() string              { return b.key("events") }
func (b *Bus) agentKey(slug string) string { return b.key("agent:" + slug) }
func (b *Bus) recordKey(s string) string   { return b.key("record:" + s) }
func (b *Bus) requestKey(id string) string { return b.key("request:" + id) }
func (b *Bus) inboxKey(name string) string { return b.key("inbox:" + name) }
func (b *Bus) claimKey(id string) string   { return b.key("claim:" + id) }
func (b *Bus) claimsKey(s string) string   { return b.key("claims:" + s) }
func (b *Bus) switchKey() string           { return b.key("flag:" + SwitchFlag) }
func (b *Bus) revisionKey() string         { return b.key("flag:" + SwitchFlag + ":revision") }
func (b *Bus) projectsKey() string         { return b.key("projects") }

// ReplyStream is the key an agent with Redis access may read its replies from.
func (b *Bus) ReplyStream(slug, requestID string) string {
	return b.key("reply:" + slug + ":" + requestID)
}

// poolKey is the list of a pool's containers.
func (b *Bus) poolKey(p Pool) string {
	return b.key(strings.Join([]string{"pool", p.Host, p.Engine, p.Make, strings.Join(p.Features, ",")}, ":"))
}

// keys is the KEYS list of every script, in the order that prelude.lua unpacks.
func (b *Bus) keys(slug, requestID, eventID string) []string {
	return []string{
		b.stream(),
		b.agentKey(slug),
		b.recordKey(slug),
		b.key("replies:" + slug),
		b.key("fate:" + slug),
		b.key("waiting:" + slug),
		b.requestKey(requestID),
		b.ReplyStream(slug, requestID),
		b.key("published:" + eventID),
		b.key("dead"),
		b.key("agents"),
		b.key("audit"),
		b.key("live"),
		b.key("letters"),
		b.claimsKey(slug),
	}
}
