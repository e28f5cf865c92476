package engines

import (
	_ "embed"
	"fmt"
	"maps"
)

//go:embed primed/postgres/Dockerfile
var pgPrimedDockerfile string

//go:embed primed/postgres/prime.sh
var pgPrimeScript string

//go:embed primed/postgres/start.sh
var pgStartScript string

// envAdminVerifier carries what the server is to keep of the superuser's password. With it the password itself stands in
// no statement, and the start need not hash it.
const envAdminVerifier = "ROBOCO_SANDBOX_ADMIN_VERIFIER"

// primedPostgres has a cluster in the image, with every password NULL. The start lays it into memory and sets the
// superuser's password over the unix socket; until then nobody can log in over TCP.
func primedPostgres() *Primed {
	return &Primed{
		Files:    map[string]string{"Dockerfile": pgPrimedDockerfile, "prime.sh": pgPrimeScript, "start.sh": pgStartScript},
		Describe: describePrimedPostgres,
	}
}

// describePrimedPostgres is the plain container but for its first process. That one is the server's own user from the
// start, so it needs no capability at all; and as only root could give a mount away, mounts are anyone's, and the cluster
// lies in a folder of its own in each.
func describePrimedPostgres(o Order) Spec {
	s := describePostgres(o)
	s.Entrypoint = []string{"sh", "/" + PrimedName + "/start.sh"}
	s.Env = maps.Clone(s.Env)
	for _, name := range []string{"POSTGRES_PASSWORD", "POSTGRES_INITDB_WALDIR", "POSTGRES_INITDB_ARGS"} {
		delete(s.Env, name)
	}
	s.Env["PGDATA"] = pgData + "/cluster"
	s.Env[envAdminVerifier] = mustVerifier(o.AdminPassword)
	for i := range s.Tmpfs {
		s.Tmpfs[i].Mode = "1777"
	}
	s.Caps = nil
	return s
}

// mustVerifier is scramVerifier of a password that is known to be hex; what it needs never fails.
func mustVerifier(password string) string {
	v, err := scramVerifier(password)
	if err != nil {
		panic(fmt.Errorf("postgres: %w", err))
	}
	return v
}
