package enginestest

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/engines"
)

// bare is one container without features, from its first start to its second removal.
func (s suite) bare(t *testing.T) {
	t.Parallel()
	b := s.provision(t, nil)
	require.NoError(t, s.engine.Activate(t.Context(), b.access, nil), "to activate again changes nothing")
	t.Run("refusals", func(t *testing.T) { b.refusals(t) })
	t.Run("processes", func(t *testing.T) { b.processes(t) })
	if _, known := openers()[s.scheme()]; !known {
		t.Run("data", func(t *testing.T) { t.Skipf("no client in client.go speaks %s://", s.scheme()) })
	} else {
		t.Run("write and read", func(t *testing.T) { b.writeAndRead(t) })
		t.Run("missing database", func(t *testing.T) { b.missingDatabase(t) })
		if s.engine.Name == "postgres" {
			t.Run("parallel joins", func(t *testing.T) { b.parallelJoins(t) })
		}
		t.Run("full", func(t *testing.T) { b.full(t) })
	}
	t.Run("remove twice", func(t *testing.T) { b.removeTwice(t) })
}

// scheme is that of the engine's connection strings.
func (s suite) scheme() string {
	scheme, _, _ := strings.Cut(s.engine.Credentials("host", 1, "password").URL, "://")
	return scheme
}

// refusals tries every login that must not work.
func (b *box) refusals(t *testing.T) {
	wrong := b.access
	wrong.Password = password()
	err := b.engine.Probe(t.Context(), wrong)
	require.Error(t, err, "a wrong password passes the probe")
	require.NotContains(t, err.Error(), wrong.Password)
	c := b.engine.Credentials(b.credentials.Host, b.credentials.Port, wrong.Password)
	if _, known := openers()[b.scheme()]; known {
		cl, err := b.open(t.Context(), c.URL)
		if err == nil {
			err = cl.Write(t.Context(), "wrong", "password")
			cl.Close(t.Context())
		}
		require.Error(t, err, "a wrong password can write")
	}
	none := b.access
	none.Password = ""
	require.Error(t, b.engine.Probe(t.Context(), none), "no password passes the probe")
	if b.access.AdminPassword != "" {
		require.NotEqual(t, b.access.Password, b.access.AdminPassword)
		swapped := b.access
		swapped.AdminPassword = b.access.Password
		err := b.engine.Up(t.Context(), swapped)
		require.Error(t, err, "the agent's password opens the superuser's account")
		require.NotContains(t, err.Error(), b.access.Password)
	}
}

// processes looks at what runs: nothing as root, and no password on a command line.
func (b *box) processes(t *testing.T) {
	if b.Processes == nil {
		t.Skip("this runtime cannot list processes")
	}
	list, err := b.Processes(t.Context(), b.id)
	require.NoError(t, err)
	require.NotEmpty(t, list)
	for _, p := range list {
		require.NotZero(t, p.UID, "runs as root: %s", p.Command)
		require.NotContains(t, p.Command, b.access.Password)
		if b.access.AdminPassword != "" {
			require.NotContains(t, p.Command, b.access.AdminPassword)
		}
	}
}

// writeAndRead goes in by the connection string and out by the environment, and the other way round.
func (b *box) writeAndRead(t *testing.T) {
	ctx := t.Context()
	byURL := b.client(t, b.credentials)
	env := map[string]string{}
	for name, value := range b.engine.Env(b.credentials) {
		require.NotEmpty(t, value, name)
		// ROBOCO_TEST_DB_HOST: the word after the prefix is the engine's.
		_, short, ok := strings.Cut(strings.TrimPrefix(name, "ROBOCO_TEST_"), "_")
		require.True(t, ok, name)
		env[short] = value
	}
	byEnv, err := openers()[b.scheme()].env(ctx, env)
	require.NoError(t, err)
	defer byEnv.Close(ctx)
	require.NoError(t, byURL.Write(ctx, "by url", "one"))
	require.NoError(t, byEnv.Write(ctx, "by env", "two"))
	got, err := byEnv.Read(ctx, "by url")
	require.NoError(t, err)
	require.Equal(t, "one", got)
	got, err = byURL.Read(ctx, "by env")
	require.NoError(t, err)
	require.Equal(t, "two", got)
}

// missingDatabase takes the agent's database away, where there can be none, and puts it back.
func (b *box) missingDatabase(t *testing.T) {
	ctx := t.Context()
	cl, ok := b.client(t, b.credentials).(dropper)
	if !ok {
		t.Logf("a database of %s is there when it is written to", b.engine.Name)
		return
	}
	require.NoError(t, cl.DropDatabase(ctx))
	require.Error(t, b.engine.Probe(ctx, b.access), "a missing database passes the probe")
	require.NoError(t, b.engine.Up(ctx, b.access), "the server itself is up")
	require.NoError(t, b.engine.Activate(ctx, b.access, nil))
	require.NoError(t, b.engine.Probe(ctx, b.access))
}

// full fills the server: an error inside, a container that lives, a login that works, and room again after a drop.
func (b *box) full(t *testing.T) {
	ctx := t.Context()
	cl := b.client(t, b.credentials)
	err := cl.Fill(ctx)
	require.Error(t, err)
	require.NotErrorIs(t, err, errNeverFull)
	t.Logf("%s says: %v", b.engine.Name, err)
	b.lives(t)
	require.NoError(t, b.engine.Probe(ctx, b.access), "a full server is a server")
	require.NoError(t, cl.Drop(ctx))
	require.NoError(t, cl.Write(ctx, "after", "the drop"))
	got, err := cl.Read(ctx, "after")
	require.NoError(t, err)
	require.Equal(t, "the drop", got)
	b.lives(t)
}

// removeTwice removes the container, and again: the second is no error.
func (b *box) removeTwice(t *testing.T) {
	ctx := t.Context()
	require.NoError(t, b.Runtime.Remove(ctx, b.id, 0))
	require.NoError(t, b.Runtime.Remove(ctx, b.id, 0))
	_, err := b.Runtime.Inspect(ctx, b.id)
	require.ErrorIs(t, err, engines.ErrNotFound)
}

// features is one container born with these features: they are there, each can be used, and no other is.
func (s suite) features(t *testing.T, wanted []string) *box {
	t.Helper()
	b := s.provision(t, wanted)
	b.use(t, wanted)
	for _, other := range s.engine.Features {
		if slices.Contains(wanted, other) {
			continue
		}
		require.ErrorContains(t, s.engine.Verify(t.Context(), b.access, []string{other}), other, "it was not asked for")
	}
	require.NoError(t, s.engine.Activate(t.Context(), b.access, wanted), "to activate again changes nothing")
	b.lives(t)
	return b
}

// use uses each feature with the agent's own login.
func (b *box) use(t *testing.T, wanted []string) {
	t.Helper()
	if _, known := openers()[b.scheme()]; !known {
		t.Logf("not used: no client in client.go speaks %s://", b.scheme())
		return
	}
	cl := b.client(t, b.credentials)
	for _, f := range wanted {
		require.NoError(t, cl.Use(t.Context(), f), f)
	}
}

// extend is a container born with one feature that gets the others while a client is at work in it. An engine that
// cannot do that says so by its error.
func (s suite) extend(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	b := s.features(t, s.engine.Features[:1])
	if !s.engine.InPlace {
		if len(s.engine.Features) > 1 {
			require.Error(t, s.engine.Verify(ctx, b.access, s.engine.Features), "features of a running server, though not in place")
		}
		return
	}
	cl := b.client(t, b.credentials)
	require.NoError(t, cl.Write(ctx, "before", "extending"))
	require.NoError(t, s.engine.Activate(ctx, b.access, s.engine.Features))
	require.NoError(t, s.engine.Verify(ctx, b.access, s.engine.Features))
	got, err := cl.Read(ctx, "before")
	require.NoError(t, err, "the client was connected all the while")
	require.Equal(t, "extending", got)
	b.use(t, s.engine.Features)
	b.lives(t)
}
