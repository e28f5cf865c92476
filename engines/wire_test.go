package engines

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestErrorsHoldNoPassword blanks what a driver or a server might repeat.
func TestErrorsHoldNoPassword(t *testing.T) {
	t.Parallel()
	a := Access{Addr: "db:1", Password: "0123456789abcdef", AdminPassword: "fedcba9876543210"}
	cause := fmt.Errorf("dial postgres://sandbox:%s@db and %s: %w", a.Password, a.AdminPassword, context.DeadlineExceeded)
	err := a.blank("test: connect", cause)
	require.EqualError(t, err, "test: connect at db:1: dial postgres://sandbox:***@db and ***: context deadline exceeded")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, a.blank("test: connect", nil))
	require.NoError(t, Access{}.blank("nothing", nil))
}

// TestPart scales sizes with the order's memory, and has a size even for the smallest.
func TestPart(t *testing.T) {
	t.Parallel()
	require.EqualValues(t, 192<<20, Order{}.part(3, 8), "512 MiB where none is said")
	require.EqualValues(t, 112<<20, Order{Memory: 512 << 20}.part(7, 32))
	require.EqualValues(t, 384<<20, Order{Memory: 1 << 30}.part(3, 8))
	require.EqualValues(t, 1<<20, Order{Memory: 1 << 20}.part(1, 16))
}

// TestProbesOfServersThatHangUp meets what a published port does while nobody listens behind it: it accepts, and closes.
// Each probe is to fail by that at once, long before it gives up by itself.
func TestProbesOfServersThatHangUp(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	for _, e := range Builtin() {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			a := Access{Addr: listener.Addr().String(), Password: "0123456789abcdef", AdminPassword: "fedcba9876543210"}
			for _, probe := range []func(context.Context, Access) error{e.Up, e.Probe} {
				err := probe(t.Context(), a)
				require.Error(t, err)
				require.False(t, errors.Is(err, context.DeadlineExceeded), "it waited for its own limit: %v", err)
				require.NotContains(t, err.Error(), a.Password)
				require.NotContains(t, err.Error(), a.AdminPassword)
			}
		})
	}
}

// TestScramVerifier has the form that the server takes for a password already hashed.
func TestScramVerifier(t *testing.T) {
	t.Parallel()
	one, err := scramVerifier("0123456789abcdef")
	require.NoError(t, err)
	require.Regexp(t, `^SCRAM-SHA-256\$4096:[A-Za-z0-9+/=]{24}\$[A-Za-z0-9+/=]{44}:[A-Za-z0-9+/=]{44}$`, one)
	two, err := scramVerifier("0123456789abcdef")
	require.NoError(t, err)
	require.NotEqual(t, one, two, "the salt is another each time")
}
