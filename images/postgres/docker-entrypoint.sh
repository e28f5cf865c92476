#!/usr/bin/env bash
# Starts the server under the upstream image's contract: the same environment names, the same hooks, and the same
# first start in two phases. README.md in images/ lists the names.
set -euo pipefail

: "${PGDATA:=/var/lib/postgresql/data}"
: "${POSTGRES_USER:=postgres}"
: "${POSTGRES_DB:=$POSTGRES_USER}"
export PGDATA

say() { printf '%s: %s\n' "${0##*/}" "$*"; }
die() { say "error: $*" >&2; exit 1; }

# NAME_FILE, where it is set, names a file that holds NAME's value.
read_secret_file() {
  local name=$1 file_name="$1_FILE"
  [ -n "${!file_name:-}" ] || return 0
  [ -z "${!name:-}" ] || die "$name and $file_name are both set: set one of them"
  export "$name=$(<"${!file_name}")"
  unset "$file_name"
}

# The server needs these directories to be its own. As root they are given to it; otherwise they must be already.
prepare_directories() {
  local dir
  for dir in "$PGDATA" "${POSTGRES_INITDB_WALDIR:-}" /var/run/postgresql; do
    [ -n "$dir" ] || continue
    mkdir -p "$dir"
    [ "$(id -u)" != 0 ] || find "$dir" \! -user postgres -exec chown postgres:postgres {} +
  done
  chmod 0700 "$PGDATA" || true
  [ -z "${POSTGRES_INITDB_WALDIR:-}" ] || chmod 0700 "$POSTGRES_INITDB_WALDIR" || true
}

# Replaces this process by itself, run by the user postgres.
step_down() {
  exec setpriv --reuid=postgres --regid=postgres --init-groups -- "$0" "$@"
}

check_settings() {
  [ -n "${POSTGRES_PASSWORD:-}" ] || [ "${POSTGRES_HOST_AUTH_METHOD:-}" = trust ] ||
    die "no password for the superuser: set POSTGRES_PASSWORD (or POSTGRES_HOST_AUTH_METHOD=trust, which lets anyone in)"
}

init_cluster() {
  local -a args
  eval "args=(${POSTGRES_INITDB_ARGS:-})"
  [ -z "${POSTGRES_INITDB_WALDIR:-}" ] || args+=(--waldir="$POSTGRES_INITDB_WALDIR")
  initdb --username="$POSTGRES_USER" --pwfile=<(printf '%s\n' "${POSTGRES_PASSWORD:-}") "${args[@]}"
  printf '\nhost all all all %s\n' "${POSTGRES_HOST_AUTH_METHOD:-scram-sha-256}" >>"$PGDATA/pg_hba.conf"
}

# The temporary server listens on the unix socket only, so that nobody outside meets a half-made cluster.
start_temporary_server() {
  [ "${1:-}" != postgres ] || shift
  NOTIFY_SOCKET='' pg_ctl --pgdata="$PGDATA" --wait --options="$(printf '%q ' "$@" -c listen_addresses= -p 5432)" start
}

stop_temporary_server() {
  pg_ctl --pgdata="$PGDATA" --mode=fast --wait stop
}

run_sql() {
  PGHOST='' PGHOSTADDR='' PGPORT=5432 psql --no-psqlrc --no-password --set=ON_ERROR_STOP=1 --username="$POSTGRES_USER" "$@"
}

create_database() {
  [ "$POSTGRES_DB" != postgres ] || return 0
  run_sql --dbname=postgres --set=db="$POSTGRES_DB" <<<'CREATE DATABASE :"db";'
}

run_init_scripts() {
  local file
  for file in /docker-entrypoint-initdb.d/*; do
    case $file in
      *.sh)
        say "running $file"
        # shellcheck source=/dev/null
        if [ -x "$file" ]; then "$file"; else . "$file"; fi
        ;;
      *.sql) say "running $file"; run_sql --dbname="$POSTGRES_DB" --file="$file" ;;
      *.sql.gz) say "running $file"; gunzip --stdout "$file" | run_sql --dbname="$POSTGRES_DB" ;;
      */\*) ;;
      *) say "ignoring $file" ;;
    esac
  done
}

first_start() {
  check_settings
  init_cluster
  export PGPASSWORD="${PGPASSWORD:-${POSTGRES_PASSWORD:-}}"
  start_temporary_server "$@"
  create_database
  run_init_scripts
  stop_temporary_server
  unset PGPASSWORD
  say "the cluster is made; starting the server"
}

main() {
  case ${1:-} in -*) set -- postgres "$@" ;; esac
  [ "${1:-}" = postgres ] || exec "$@"
  prepare_directories
  [ "$(id -u)" != 0 ] || step_down "$@"
  read_secret_file POSTGRES_PASSWORD
  [ -s "$PGDATA/PG_VERSION" ] || first_start "$@"
  exec "$@"
}

main "$@"
