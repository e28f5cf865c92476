package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Sealer keeps what is recorded of an engine, its credentials among it, unreadable in Redis. The place says whose and of what
// it is: what was sealed for one place opens for no other.
type Sealer interface {
	Seal(plain []byte, place string) (text []byte)
	Open(text []byte, place string) (plain []byte, err error)
}

// SealedError says that what is recorded of an engine cannot be opened here. Nothing was changed.
type SealedError struct {
	Slug, Engine string
	Cause        error
}

// Error names the engine and what to do.
func (e *SealedError) Error() string {
	return fmt.Sprintf("the recorded credentials of %s's %s cannot be opened: %v", e.Slug, e.Engine, e.Cause)
}

// Unwrap gives the cause.
func (e *SealedError) Unwrap() error { return e.Cause }

// Remediate says what an operator does about it.
func (*SealedError) Remediate() string {
	return "An operator must give every worker and gateway the same ROBOCO_SANDBOX_SEAL_KEYS, or remove this sandbox: the next request then makes a fresh one."
}

// place tells where a payload belongs. The ID binds it to the container whose credentials it holds.
func (b *Bus) place(slug, engine, id string) string {
	return strings.Join([]string{b.cfg.Cell, slug, engine, id}, "\x00")
}

// seal gives an entry as it is recorded.
func (b *Bus) seal(slug, engine string, e Entry) ([]byte, error) {
	if b.cfg.Sealer != nil {
		text, err := json.Marshal(string(b.cfg.Sealer.Seal(e.Payload, b.place(slug, engine, e.ID))))
		if err != nil {
			return nil, fmt.Errorf("write a sealed payload: %w", err)
		}
		e.Payload = text
	}
	return e.marshal()
}

// sealedMark is how a sealed payload begins: a JSON text, where any other payload is a JSON object.
const sealedMark = `"sealed:`

// open gives an entry as it was before it was recorded. What was recorded before there were keys opens as it stands.
func (b *Bus) open(slug, engine string, e Entry) (Entry, error) {
	if !bytes.HasPrefix(e.Payload, []byte(sealedMark)) {
		return e, nil
	}
	sealed := e.Payload
	e.Payload = nil
	failed := func(cause error) (Entry, error) { return e, &SealedError{Slug: slug, Engine: engine, Cause: cause} }
	if b.cfg.Sealer == nil {
		return failed(errors.New("they are sealed, and no keys are configured here"))
	}
	var text string
	if err := json.Unmarshal(sealed, &text); err != nil {
		return failed(errors.New("they are no text"))
	}
	plain, err := b.cfg.Sealer.Open([]byte(text), b.place(slug, engine, e.ID))
	if err != nil {
		return failed(err)
	}
	e.Payload = plain
	return e, nil
}

// openAll opens a whole record in place, and gives the first failure; entries that do not open have no payload.
func (b *Bus) openAll(slug string, record map[string]Entry) (failure error) {
	for engine, e := range record {
		opened, err := b.open(slug, engine, e)
		if err != nil && failure == nil {
			failure = err
		}
		record[engine] = opened
	}
	return failure
}

// unopened is what who asked is told of credentials that cannot be opened.
func unopened(err error) *Refusal {
	return &Refusal{Guard: 8, Message: err.Error(), Remediate: (*SealedError)(nil).Remediate()}
}
