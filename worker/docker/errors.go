package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/client"

	"github.com/roboco/sandboxd/engines"
)

// classify gives an error of the API client the meaning that package engines names. What is not recognized stays as
// it is: permanent. A conflict means different things to different calls, so callers of those look at it themselves.
func classify(err error) error {
	switch {
	case err == nil:
		return nil
	case errdefs.IsNotFound(err):
		return fmt.Errorf("%w: %w", engines.ErrNotFound, err)
	case unanswered(err):
		return unavailable(err)
	}
	return err
}

// nameTaken is classify for calls whose only conflict is about the name.
func nameTaken(err error) error {
	if errdefs.IsConflict(err) {
		return fmt.Errorf("%w: %w", engines.ErrNameTaken, err)
	}
	return classify(err)
}

// unanswered reports that the engine gave no usable answer: out of reach, too slow, cut off, or itself at fault.
func unanswered(err error) bool {
	var dial net.Error
	switch {
	case client.IsErrConnectionFailed(err), errors.As(err, &dial):
		return true
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return true
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return true
	case errdefs.IsInternal(err), errdefs.IsUnavailable(err), errdefs.IsUnknown(err), errdefs.IsResourceExhausted(err):
		return true
	}
	return false
}
