// Package seal keeps bytes unreadable for whoever has no key: AES-256-GCM under the first of several named keys, each of
// which can still open what it sealed. It knows nothing of what it seals.
package seal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// keyBytes is the length of a key.
const keyBytes = 32

// mark begins what is sealed: the form's version, then the key's name, then the bytes.
const mark = "sealed:1:"

// Errors of Open, to be matched with errors.Is.
var (
	// ErrNoKey: it was sealed under a key that is not among these.
	ErrNoKey = errors.New("it was sealed under a key that is not configured here")
	// ErrAltered: it is not what was sealed for this place, or the key of that name is another one.
	ErrAltered = errors.New("it does not open: it was altered, belongs elsewhere, or the key of that name is another")
)

var nameShape = regexp.MustCompile(`^[A-Za-z0-9._-]{1,32}$`)

// Keys seal with the first, and open with all. They are safe for concurrent use.
type Keys struct {
	first  string
	byName map[string]cipher.AEAD
}

// Parse reads "name:key,name:key,...": a key is 32 random bytes in base64 (openssl rand -base64 32). Its errors repeat no key.
func Parse(text string) (*Keys, error) {
	k := &Keys{byName: map[string]cipher.AEAD{}}
	for i, part := range strings.Split(text, ",") {
		name, encoded, ok := strings.Cut(strings.TrimSpace(part), ":")
		if !ok || !nameShape.MatchString(name) {
			return nil, fmt.Errorf("key %d is not name:base64, with a name of %s", i+1, nameShape)
		}
		if k.byName[name] != nil {
			return nil, fmt.Errorf("there are two keys of the name %s", name)
		}
		raw, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil || len(raw) != keyBytes {
			return nil, fmt.Errorf("key %s is not %d bytes in base64", name, keyBytes)
		}
		block, err := aes.NewCipher(raw)
		if err != nil {
			return nil, fmt.Errorf("key %s: %w", name, err)
		}
		if k.byName[name], err = cipher.NewGCMWithRandomNonce(block); err != nil {
			return nil, fmt.Errorf("key %s: %w", name, err)
		}
		if i == 0 {
			k.first = name
		}
	}
	return k, nil
}

// Seal makes bytes unreadable. They open only for the same place: whatever tells where they belong. What it gives is text.
func (k *Keys) Seal(plain []byte, place string) []byte {
	sealed := k.byName[k.first].Seal(nil, nil, plain, []byte(place))
	return []byte(mark + k.first + ":" + base64.RawStdEncoding.EncodeToString(sealed))
}

// Open gives what was sealed for this place. Errors are ErrNoKey, which names the key, and ErrAltered.
func (k *Keys) Open(sealed []byte, place string) ([]byte, error) {
	rest, ok := bytes.CutPrefix(sealed, []byte(mark))
	if !ok {
		return nil, ErrAltered
	}
	name, encoded, _ := strings.Cut(string(rest), ":")
	if !nameShape.MatchString(name) {
		return nil, ErrAltered
	}
	key := k.byName[name]
	if key == nil {
		return nil, fmt.Errorf("%w: %s", ErrNoKey, name)
	}
	raw, err := base64.RawStdEncoding.Strict().DecodeString(encoded)
	if err != nil {
		return nil, ErrAltered
	}
	plain, err := key.Open(nil, nil, raw, []byte(place))
	if err != nil {
		return nil, ErrAltered
	}
	return plain, nil
}

// IsSealed tells what Seal gave from what it was given.
func IsSealed(b []byte) bool { return bytes.HasPrefix(b, []byte(mark)) }
