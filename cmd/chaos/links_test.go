package main

import (
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// echo answers with what it is told, at an address of this network.
func echo(t *testing.T, network, addr string) string {
	t.Helper()
	l, err := net.Listen(network, addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); _, _ = io.Copy(c, c) }()
		}
	}()
	return l.Addr().String()
}

// says writes a word and reads it back; false when the connection broke, or nothing came in time.
func says(t *testing.T, c net.Conn, within time.Duration) bool {
	t.Helper()
	if _, err := c.Write([]byte("word")); err != nil {
		return false
	}
	require.NoError(t, c.SetReadDeadline(time.Now().Add(within)))
	_, err := io.ReadFull(c, make([]byte, 4))
	return err == nil
}

func dialed(t *testing.T, network, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial(network, addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestLink(t *testing.T) {
	t.Parallel()
	l, err := newLink(t.Context(), proxies(), "l", echo(t, "tcp", "127.0.0.1:0"))
	require.NoError(t, err)
	t.Cleanup(l.close)
	c := dialed(t, "tcp", l.addr())
	require.True(t, says(t, c, time.Minute))

	mend, ok := l.cut()
	require.True(t, ok)
	_, busy := l.slow(time.Second)
	require.False(t, busy, "one fault at a time")
	require.False(t, says(t, c, time.Minute), "the connection broke")
	require.Eventually(t, func() bool { // the listener may take a moment to go
		c, err := net.Dial("tcp", l.addr())
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	}, time.Minute, time.Millisecond, "a new one is refused")
	mend()

	c = dialed(t, "tcp", l.addr())
	require.True(t, says(t, c, time.Minute))
	mend, ok = l.silence()
	require.True(t, ok)
	require.False(t, says(t, c, 200*time.Millisecond), "nothing comes back")
	mend()

	c = dialed(t, "tcp", l.addr())
	mend, ok = l.slow(300 * time.Millisecond)
	require.True(t, ok)
	began := time.Now()
	require.True(t, says(t, c, time.Minute))
	require.GreaterOrEqual(t, time.Since(began), 100*time.Millisecond)
	mend()
	require.True(t, says(t, c, time.Minute))
}

func TestRelay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r, err := newRelay(t.Context(), filepath.Join(dir, "relay"), echo(t, "unix", filepath.Join(dir, "echo")))
	require.NoError(t, err)
	t.Cleanup(r.close)
	c := dialed(t, "unix", r.socket)
	require.True(t, says(t, c, time.Minute))

	release := r.hold()
	require.Nil(t, r.hold(), "it is held already")
	require.False(t, says(t, c, 200*time.Millisecond), "nothing passes")
	release()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err = io.ReadFull(c, make([]byte, 4))
	require.NoError(t, err, "what was held back comes through")

	r.cut()
	require.False(t, says(t, c, time.Minute))
	c = dialed(t, "unix", r.socket)
	require.True(t, says(t, c, time.Minute))
	r.setRefuses(true)
	require.False(t, says(t, dialed(t, "unix", r.socket), time.Minute))
	r.calm()
	require.True(t, says(t, dialed(t, "unix", r.socket), time.Minute))
}

// What ends is told on: an answer that is complete is complete for the other side too.
func TestRelayHandsTheEndOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r, err := newRelay(t.Context(), filepath.Join(dir, "relay"), echo(t, "unix", filepath.Join(dir, "echo")))
	require.NoError(t, err)
	t.Cleanup(r.close)
	c := dialed(t, "unix", r.socket)
	_, err = c.Write([]byte("all of it"))
	require.NoError(t, err)
	half, ok := c.(*net.UnixConn)
	require.True(t, ok)
	require.NoError(t, half.CloseWrite())
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	got, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Equal(t, "all of it", string(got))
}
