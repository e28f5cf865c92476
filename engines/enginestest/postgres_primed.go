package enginestest

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/engines"
)

// postgresPrimed is what only a primed postgres can get wrong: who can log in when, and what it has that a plain one has not.
func (s suite) postgresPrimed(t *testing.T) {
	t.Helper()
	t.Run("nobody before the password", s.nobodyBeforeThePassword)
	t.Run("as a plain one", s.asPlain)
	t.Run("secrets of its own", s.ownSecrets)
	t.Run("no verifier", s.noVerifier)
}

// nobodyBeforeThePassword tries every login over TCP from the first moment on, as often as it can: with no password, with
// those of roles that have none, with another's. Only the superuser's own ever works.
func (s suite) nobodyBeforeThePassword(t *testing.T) {
	t.Parallel()
	b := s.launch(t, s.order(nil), nil)
	type login struct{ user, password, database string }
	wrong := []login{
		{"postgres", "", "postgres"},
		{"postgres", "postgres", "postgres"},
		{"postgres", b.access.Password, "postgres"},
		{"postgres", "", "template1"},
		{"postgres", b.spec.Env["ROBOCO_SANDBOX_ADMIN_VERIFIER"], "postgres"},
		{"sandbox", "", "sandbox"},
		{"sandbox", b.access.Password, "sandbox"},
		{"sandbox", b.access.AdminPassword, "sandbox"},
	}
	refused := 0 // by a server that was there to refuse
	try := func() {
		for _, l := range wrong {
			conn, err := b.login(t.Context(), l.user, l.password, l.database)
			if err == nil {
				_ = conn.Close(t.Context())
			}
			require.Error(t, err, "%s is let in with %q", l.user, l.password)
			if sqlState(err) == "28P01" {
				refused++
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		try()
		if b.engine.Up(ctx, b.access) == nil {
			break
		}
		require.NoError(t, ctx.Err(), b.logs(t))
	}
	try()
	require.Positive(t, refused)
	require.NoError(t, b.engine.Activate(ctx, b.access, nil))
	require.NoError(t, b.engine.Probe(ctx, b.access))
	b.lives(t)
}

// login opens a session with these words. An empty password is sent as one.
func (b *box) login(ctx context.Context, user, password, database string) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	u, err := url.Parse(b.credentials.URL)
	if err != nil {
		return nil, err
	}
	u.User, u.Path = url.UserPassword(user, password), "/"+database
	return pgx.Connect(ctx, u.String())
}

// asPlain compares what stands in the catalogues of a primed server and of a plain one, of both images: the same roles with
// the same rights, the same databases, the same ways in but for the unix socket, the same settings.
func (s suite) asPlain(t *testing.T) {
	t.Parallel()
	for _, features := range [][]string{nil, {"citext"}} {
		plain := s
		plain.primed = false
		a, b := plain.provision(t, features), s.provision(t, features)
		for what, query := range map[string]string{
			"roles": `SELECT r::text FROM (SELECT rolname, rolsuper, rolinherit, rolcreaterole, rolcreatedb, rolcanlogin, rolreplication,
				rolbypassrls, rolconnlimit, rolvaliduntil, left(rolpassword, 19) FROM pg_authid) r`,
			"settings of roles": "SELECT (setrole::regrole, setconfig)::text FROM pg_db_role_setting",
			"members":           "SELECT (roleid::regrole, member::regrole, grantor::regrole, admin_option)::text FROM pg_auth_members",
			"parameters":        "SELECT (parname, paracl)::text FROM pg_parameter_acl",
			"databases": `SELECT (datname, datdba::regrole, pg_encoding_to_char(encoding), datlocprovider, datistemplate, datallowconn,
				datconnlimit, datcollate, datctype, datacl)::text FROM pg_database`,
			"ways in over TCP": "SELECT (type, database, user_name, address, netmask, auth_method, options)::text FROM pg_hba_file_rules WHERE type <> 'local'",
			"settings": `SELECT (name, setting)::text FROM pg_settings
				WHERE name NOT IN ('data_directory', 'config_file', 'hba_file', 'ident_file', 'external_pid_file', 'application_name')`,
			"extensions": "SELECT (extname, extversion, extnamespace::regnamespace)::text FROM pg_extension",
			"checksums":  "SHOW data_checksums",
		} {
			want, got := column(t, a, query), column(t, b, query)
			require.NotEmpty(t, want, what)
			require.ElementsMatch(t, want, got, what)
		}
		local := column(t, b, "SELECT DISTINCT auth_method FROM pg_hba_file_rules WHERE type = 'local'")
		require.Equal(t, []any{"peer"}, local, "no way in over the socket for anybody but the server's own user")
	}
}

// column is what a query of one column gives the superuser.
func column(t *testing.T, b *box, query string) (all []any) {
	t.Helper()
	rows, err := b.in(t, "", "postgres", b.access.AdminPassword).Query(t.Context(), query)
	require.NoError(t, err, query)
	for rows.Next() {
		values, err := rows.Values()
		require.NoError(t, err)
		all = append(all, values...)
	}
	require.NoError(t, rows.Err(), query)
	return all
}

// ownSecrets has two servers of one image: each keeps a verifier of its own, and knows the other's password no more than any
// other. The system identifier is the cluster's, so they share it.
func (s suite) ownSecrets(t *testing.T) {
	t.Parallel()
	a, b := s.provision(t, nil), s.provision(t, nil)
	const verifiers = "SELECT rolname || ' ' || rolpassword FROM pg_authid WHERE rolpassword IS NOT NULL ORDER BY rolname"
	one, two := column(t, a, verifiers), column(t, b, verifiers)
	require.Len(t, one, 2)
	require.Len(t, two, 2)
	for i := range one {
		require.NotEqual(t, one[i], two[i])
		require.Regexp(t, "^(postgres|sandbox) SCRAM-SHA-256[$]", one[i])
	}
	require.NotEqual(t, a.access, b.access)
	swapped := a.access
	swapped.AdminPassword, swapped.Password = b.access.AdminPassword, b.access.Password
	require.Error(t, s.engine.Up(t.Context(), swapped))
	require.Error(t, s.engine.Probe(t.Context(), swapped))
	const identifier = "SELECT system_identifier::text FROM pg_control_system()"
	t.Logf("system identifiers: %v %v", column(t, a, identifier), column(t, b, identifier))
}

// noVerifier has nothing to set: the container exits at once, and its log says why.
func (s suite) noVerifier(t *testing.T) {
	t.Parallel()
	id := s.orphan(t, func(l *engines.Launch) { delete(l.Env, "ROBOCO_SANDBOX_ADMIN_VERIFIER") })
	s.exits(t, id, "nobody could ever log in")
	id = s.orphan(t, func(l *engines.Launch) { l.Tmpfs[0].Size = 1 << 20 })
	s.exits(t, id, "the cluster could not be laid")
}

// orphan starts a container that is not expected to live.
func (s suite) orphan(t *testing.T, change func(*engines.Launch)) (id string) {
	t.Helper()
	o := s.order(nil)
	l := engines.Launch{
		Spec: s.spec(t, o), Name: fmt.Sprintf("%s-%s-%s", s.Prefix, s.engine.Short, password()[:8]),
		Labels: s.Labels, Network: s.Network, Memory: s.Memory, NanoCPUs: 1e9, Pids: 256,
	}
	change(&l)
	id, err := s.Runtime.Create(t.Context(), l)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Runtime.Remove(context.WithoutCancel(t.Context()), id, 0) })
	require.NoError(t, s.Runtime.Start(t.Context(), id))
	return id
}

func (s suite) exits(t *testing.T, id, says string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	code, err := s.Runtime.WaitExit(ctx, id)
	require.NoError(t, err)
	require.NotZero(t, code)
	text, err := s.Runtime.Logs(ctx, id, 5)
	require.NoError(t, err)
	require.Contains(t, text, says)
}
