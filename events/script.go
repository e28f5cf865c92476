package events

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed prelude.lua
var preludeLua string

//go:embed fate.lua
var fateLua string

// scripts are the transitions, ready to be called by their hash.
type scripts struct {
	publish, begin, answer, beat, tell, record, settle, giveup, revoke, adopt, finish, own, sandbox, sweep, handback, stumble, retry,
	stock, claim, retire, forget, keep, unkeep, announce, mirror *redis.Script
}

// load builds the scripts; without an audit its statements are not in their text.
func load(audit bool) scripts {
	script := func(parts ...string) *redis.Script {
		text := strings.Join(append([]string{preludeLua}, parts...), "\n")
		if !audit {
			text = withoutAudit(text)
		}
		return redis.NewScript(text)
	}
	return scripts{
		publish:  script(publishLua),
		begin:    script(beginLua),
		answer:   script(answerLua),
		beat:     script(beatLua),
		tell:     script(tellLua),
		record:   script(recordLua),
		settle:   script(settleLua),
		giveup:   script(giveupLua),
		revoke:   script(fateLua, revokeLua),
		adopt:    script(fateLua, adoptLua),
		finish:   script(finishLua),
		own:      script(ownLua),
		sandbox:  script(sandboxLua),
		sweep:    script(sweepLua),
		handback: script(handbackLua),
		stumble:  script(stumbleLua),
		retry:    script(retryLua),
		stock:    script(stockLua),
		claim:    script(claimLua),
		retire:   script(retireLua),
		forget:   script(forgetLua),
		keep:     script(keepLua),
		unkeep:   script(unkeepLua),
		announce: script(announceLua),
		mirror:   script(mirrorLua),
	}
}

// ScriptNames gives the name of each transition by the SHA-1 of its script, by which a server knows it: for whoever watches
// the calls of a Redis client go by.
func (b *Bus) ScriptNames() map[string]string {
	s := b.scripts
	names := map[string]string{}
	for name, script := range map[string]*redis.Script{
		"publish": s.publish, "begin": s.begin, "answer": s.answer, "beat": s.beat, "tell": s.tell, "record": s.record,
		"settle": s.settle, "giveup": s.giveup, "revoke": s.revoke, "adopt": s.adopt, "finish": s.finish, "own": s.own, "sandbox": s.sandbox,
		"sweep": s.sweep, "handback": s.handback, "stumble": s.stumble, "retry": s.retry,
		"stock": s.stock, "claim": s.claim, "retire": s.retire, "forget": s.forget, "keep": s.keep, "unkeep": s.unkeep, "announce": s.announce, "mirror": s.mirror,
	} {
		names[script.Hash()] = name
	}
	return names
}

// withoutAudit cuts the lines out that are statements of the audit.
func withoutAudit(text string) string {
	lines := strings.Split(text, "\n")
	kept := lines[:0]
	for _, line := range lines {
		bare := strings.TrimSpace(line)
		if strings.HasPrefix(bare, "audit_") || strings.HasPrefix(bare, "local function audit_") {
			continue
		}
		kept = append(kept, line)
	}
	return strings.Join(kept, "\n")
}

// settings is what every script knows of the cell: ARGV 1. Times are milliseconds.
type settings struct {
	Group     string `json:"group"`
	Parked    string `json:"parked"`
	Lined     string `json:"lined"`
	Inbox     string `json:"inbox"`
	Claim     string `json:"claim"`
	Lease     int64  `json:"lease"`
	ClaimIdle int64  `json:"claim_idle"`
	Park      int64  `json:"park"`
	TTL       int64  `json:"ttl"`
	ReplyTTL  int64  `json:"reply_ttl"`
	Remember  int64  `json:"remember"`
	Accept    int64  `json:"accept"`
	Attempts  int    `json:"attempts"`
	StreamCap int64  `json:"stream_cap"`
	AgentCap  int64  `json:"agent_cap"`
	Line      int64  `json:"line"`
	Patience  int64  `json:"patience"`
	Max       int64  `json:"max"`
}

// handle names an entry in the hands of a consumer, in a script's arguments.
type handle struct {
	Slug     string `json:"slug"`
	Consumer string `json:"consumer"`
	Entry    string `json:"entry"`
	RID      string `json:"rid"`
	Hand     string `json:"hand"` // for the audit
}

func (d Delivery) handle() handle {
	return handle{Slug: d.Event.Subject, Consumer: d.consumer, Entry: d.Entry, RID: d.rid, Hand: d.hand}
}

// want is a Want in a script's arguments.
type want struct {
	Engine   string   `json:"e"`
	Features []string `json:"f"`
}

func wants(list []Want) []want {
	out := make([]want, len(list))
	for i, w := range list {
		out[i] = want{Engine: w.Engine, Features: full(w.Features)}
	}
	return out
}

// full makes a list that is written as [] when it is empty: Lua has no other empty list.
func full(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// callLimit bounds a call whose caller set no limit of its own.
const callLimit = 5 * time.Second

// run calls a transition: args become ARGV 2, raw what follows.
func (b *Bus) run(ctx context.Context, s *redis.Script, keys []string, args any, raw ...any) (*redis.Cmd, error) {
	text, err := json.Marshal(args)
	if err != nil {
		return nil, fmt.Errorf("write the arguments: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	cmd := s.Run(ctx, b.calls, keys, append([]any{b.settings, text}, raw...)...)
	return cmd, cmd.Err() //nolint:wrapcheck // the callers say what they were doing
}

// word calls a transition that returns one word.
func (b *Bus) word(ctx context.Context, doing string, s *redis.Script, keys []string, args any, raw ...any) (string, error) {
	cmd, err := b.run(ctx, s, keys, args, raw...)
	if err != nil {
		return "", failed(doing, err)
	}
	v, err := cmd.Text()
	return v, failed(doing, err)
}

// number calls a transition that returns a number.
func (b *Bus) number(ctx context.Context, doing string, s *redis.Script, keys []string, args any, raw ...any) (int, error) {
	cmd, err := b.run(ctx, s, keys, args, raw...)
	if err != nil {
		return 0, failed(doing, err)
	}
	v, err := cmd.Int()
	return v, failed(doing, err)
}

// list calls a transition that returns a list of exactly n texts, or an empty one.
func (b *Bus) list(ctx context.Context, doing string, n int, s *redis.Script, keys []string, args any) ([]string, error) {
	cmd, err := b.run(ctx, s, keys, args)
	if err != nil {
		return nil, failed(doing, err)
	}
	values, err := cmd.Slice()
	if err != nil {
		return nil, failed(doing, err)
	}
	if len(values) == 0 {
		return nil, nil
	}
	out := make([]string, n)
	for i := range min(n, len(values)) {
		out[i] = fmt.Sprint(values[i])
	}
	return out, nil
}
