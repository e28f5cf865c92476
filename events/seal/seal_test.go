package seal_test

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/roboco/sandboxd/events/seal"
)

func key(b byte) string { return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, 32)) }

func parse(t require.TestingT, text string) *seal.Keys {
	k, err := seal.Parse(text)
	require.NoError(t, err)
	return k
}

func TestSealOpensForItsPlaceAlone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		k := parse(r, "a:"+key(1))
		plain, place := rapid.SliceOf(rapid.Byte()).Draw(r, "plain"), rapid.String().Draw(r, "place")
		sealed := k.Seal(plain, place)
		require.True(r, seal.IsSealed(sealed))
		got, err := k.Open(sealed, place)
		require.NoError(r, err)
		require.True(r, bytes.Equal(plain, got))
		_, err = k.Open(sealed, place+"x")
		require.ErrorIs(r, err, seal.ErrAltered)

		at := rapid.IntRange(0, len(sealed)-1).Draw(r, "at")
		altered := bytes.Clone(sealed)
		altered[at] ^= byte(rapid.IntRange(1, 255).Draw(r, "by"))
		_, err = k.Open(altered, place)
		require.Error(r, err)
		_, err = k.Open(sealed[:at], place)
		require.Error(r, err)
	})
}

func TestSealIsNeverTwiceTheSame(t *testing.T) {
	t.Parallel()
	k := parse(t, "a:"+key(1))
	require.NotEqual(t, k.Seal([]byte("x"), "p"), k.Seal([]byte("x"), "p"))
}

func TestRotation(t *testing.T) {
	t.Parallel()
	old, both, fresh := parse(t, "a:"+key(1)), parse(t, "b:"+key(2)+", a:"+key(1)), parse(t, "b:"+key(2))
	sealed := old.Seal([]byte("secret"), "p")
	got, err := both.Open(sealed, "p")
	require.NoError(t, err)
	require.Equal(t, "secret", string(got))
	_, err = fresh.Open(sealed, "p")
	require.ErrorIs(t, err, seal.ErrNoKey)
	require.ErrorContains(t, err, ": a")
	got, err = fresh.Open(both.Seal([]byte("secret"), "p"), "p")
	require.NoError(t, err, "the first one seals")
	require.Equal(t, "secret", string(got))
	_, err = parse(t, "a:"+key(9)).Open(sealed, "p")
	require.ErrorIs(t, err, seal.ErrAltered, "another key under the same name")
}

func TestParseRefusesWithoutRepeatingAKey(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		"":                                     "name:base64",
		key(1):                                 "name:base64",
		"a b:" + key(1):                        "name:base64",
		"a:" + key(1)[:20]:                     "32 bytes",
		"a:***":                                "32 bytes",
		"a:" + key(1) + ",a:" + key(2):         "two keys",
		"a:" + key(1) + ",":                    "key 2",
		strings.Repeat("a", 33) + ":" + key(1): "name:base64",
	} {
		_, err := seal.Parse(text)
		require.ErrorContains(t, err, says, text)
		require.NotContains(t, err.Error(), key(1)[:20])
	}
}
