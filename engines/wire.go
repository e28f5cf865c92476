package engines

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// attempt limits one probe: long enough for a busy machine, short enough that a server which hangs is asked again.
const attempt = 3 * time.Second

// defaultMemory stands in for an order without a limit, in bytes.
const defaultMemory = 512 << 20

// part is this fraction of the order's memory, in whole MiB and at least one, so that sizes keep their proportions at
// any limit.
func (o Order) part(n, of int64) int64 {
	memory := o.Memory
	if memory <= 0 {
		memory = defaultMemory
	}
	return max(memory*n/of>>20, 1) << 20
}

// mib is a size in whole MiB.
func mib(bytes int64) int64 { return bytes >> 20 }

// withoutEmpty is this environment with every empty value left out: a name that is set has something to say.
func withoutEmpty(env map[string]string) map[string]string {
	maps.DeleteFunc(env, func(_, v string) bool { return v == "" })
	return env
}

// onlyAllowed is an error that names each wanted feature which is not on the allowlist.
func onlyAllowed(engine string, allowed, wanted []string) error {
	return missing(engine, "features that are not allowed", wanted, allowed)
}

// missing is an error that names, under these words, each wanted name that is not among those present.
func missing(engine, words string, wanted, present []string) error {
	var absent []string
	for _, w := range wanted {
		if !slices.Contains(present, w) {
			absent = append(absent, w)
		}
	}
	if len(absent) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %s: %s", engine, words, strings.Join(absent, ", "))
}

// blank wraps an error, saying what was being done, with both passwords cut out of its text. The cause is still to be
// had by errors.Is and errors.As. A nil error stays nil.
func (a Access) blank(doing string, err error) error {
	if err == nil {
		return nil
	}
	text := doing + " at " + a.Addr + ": " + err.Error()
	for _, secret := range []string{a.Password, a.AdminPassword} {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	return &wireError{text: text, cause: err}
}

// wireError is an error of a server or of its driver whose text holds no password.
type wireError struct {
	text  string
	cause error
}

// Error is the text without passwords.
func (e *wireError) Error() string { return e.text }

// Unwrap gives the cause.
func (e *wireError) Unwrap() error { return e.cause }
