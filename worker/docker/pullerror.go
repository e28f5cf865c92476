package docker

import (
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/client"

	"github.com/roboco/sandboxd/engines"
)

// pullError says whether trying again may help. The engine passes a registry's answer on as text, mostly under the
// status of a failure of its own, so it is the text that decides; whatever is not known to be final may be tried again.
func pullError(ref string, err error) error {
	if err == nil {
		return nil
	}
	e := &engines.PullError{Image: ref, Retryable: true, Cause: err}
	text := strings.ToLower(err.Error())
	switch {
	case mentions(text, "toomanyrequests", "too many requests", "rate limit"):
	case client.IsErrConnectionFailed(err):
		// Only this is the engine's own silence.
		e.Cause = unavailable(err)
	case errdefs.IsNotFound(err), mentions(text, "manifest unknown", "name unknown", "not known to registry"):
		e.Cause, e.Retryable = fmt.Errorf("%w: %w", engines.ErrNotFound, err), false
	case errdefs.IsInvalidArgument(err), errdefs.IsUnauthorized(err), errdefs.IsPermissionDenied(err):
		e.Retryable = false
	case mentions(text, "no such host"): // the registry has no address: misspelt, or out of this network's reach
		e.Retryable = false
	case strings.HasSuffix(text, ": denied"), mentions(text, "denied:", "access denied", "resource is denied", "unauthorized",
		"authentication required", "no basic auth", "no matching manifest", "invalid reference"):
		e.Retryable = false
	}
	return e
}

func mentions(text string, phrases ...string) bool {
	return slices.ContainsFunc(phrases, func(p string) bool { return strings.Contains(text, p) })
}
