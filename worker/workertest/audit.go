package workertest

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// ReadMarks turns entries of the audit stream into marks. An entry that cannot be read is an error: the checks must not
// pass over what they do not understand.
func ReadMarks(entries []redis.XMessage) ([]Mark, error) {
	marks := make([]Mark, 0, len(entries))
	for _, e := range entries {
		m, err := readMark(e.Values)
		if err != nil {
			return nil, fmt.Errorf("audit entry %s: %w", e.ID, err)
		}
		marks = append(marks, m)
	}
	return marks, nil
}

func readMark(values map[string]any) (Mark, error) {
	f := func(name string) string { s, _ := values[name].(string); return s }
	m := Mark{
		Kind: MarkKind(f("k")), Agent: f("a"), ID: f("id"), Type: f("typ") + f("by"), Owner: f("own"), Engine: f("e"), Container: f("c"),
		Born: f("born"), Epoch: f("ep"), Lease: f("lease"), Request: f("rid"), State: f("st"), Task: f("task"), Project: f("project"),
	}
	var err error
	if m.At, err = strconv.ParseInt(f("us"), 10, 64); err != nil {
		return Mark{}, fmt.Errorf("time of a %q: %w", m.Kind, err)
	}
	if f("chk") != "" {
		if m.Checked, err = strconv.ParseInt(f("chk"), 10, 64); err != nil {
			return Mark{}, fmt.Errorf("time of the check: %w", err)
		}
	}
	if s := f("feats"); s != "" {
		m.Features = strings.Split(s, ",")
	}
	if s := f("p"); s != "" {
		if m.Handed, err = readHanded(s); err != nil {
			return Mark{}, err
		}
	}
	return m, nil
}

// readHanded reads the digest of what a reply hands out.
func readHanded(digest string) (map[string]string, error) {
	var by map[string]struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal([]byte(digest), &by); err != nil {
		return nil, fmt.Errorf("digest of a reply: %w", err)
	}
	handed := make(map[string]string, len(by))
	for engine, x := range by {
		handed[engine] = x.ID
	}
	return handed, nil
}
