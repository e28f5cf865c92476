#!/bin/sh
# Starts the server of a primed image: lays the cluster that prime.sh made into the mounts, hands over to the image's
# entrypoint, and sets the superuser's password as soon as the server answers. Until then every password is NULL, with
# which nobody can log in over TCP. Its arguments are the command, as the entrypoint takes it.
set -eu

home=/roboco-sandbox-primed/made
socket=/var/run/postgresql/.s.PGSQL.5432

say() { echo "roboco-sandbox-primed: $*" >&2; }

# The verifier goes in by standard input: a command line is everybody's to read.
set_password() {
  printf "ALTER ROLE postgres PASSWORD '%s';\n" "$ROBOCO_SANDBOX_ADMIN_VERIFIER" |
    psql --no-psqlrc --quiet --no-password --set=ON_ERROR_STOP=1 --host="${socket%/*}" --username=postgres --dbname=postgres 2>&1
}

# Runs beside the server, and is the server's child once the shell below has become that: how it ends must be 0 or 1, for
# any other status makes a server believe that a session of its own has crashed. A server that nobody can log in to is stopped.
set_password_soon() {
  until [ -S "$socket" ]; do sleep 0.01; done
  tries=0
  until said=$(set_password); do
    tries=$((tries + 1))
    if [ "$tries" -gt 200 ]; then
      say "error: the password could not be set: $said"
      kill -INT 1
      exit 1
    fi
    [ "$tries" -lt 10 ] || sleep 0.1
  done
}

if [ -z "${ROBOCO_SANDBOX_ADMIN_VERIFIER:-}" ]; then
  say "error: ROBOCO_SANDBOX_ADMIN_VERIFIER is not set: nobody could ever log in"
  exit 1
fi
# Times are not kept: to set them costs a call for each of a thousand files.
if ! tar -C /var/lib/postgresql -xomf "$home/cluster.tar"; then
  say "error: the cluster could not be laid into $PGDATA"
  exit 1
fi
set_password_soon &
[ ! -e "$home/direct" ] || exec "$@"
exec docker-entrypoint.sh "$@"
