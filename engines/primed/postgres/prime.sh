#!/bin/sh
# Makes the cluster that start.sh lays into a container's memory. It runs once, while the image is built, as the server's
# user. What is left of it is made/cluster.tar, and made/direct where the image's entrypoint need not run.
set -eu

home=/roboco-sandbox-primed/made
root=/var/lib/postgresql

# As engines/postgres.go has it for a plain start, but for the way in over the unix socket, which start.sh needs: the
# system's user postgres is the server's. Nobody else has a process in the container.
export TZ=UTC
export POSTGRES_INITDB_ARGS='--no-sync --no-instructions --auth-host=scram-sha-256 --auth-local=peer --wal-segsize=4'
export POSTGRES_INITDB_WALDIR=$root/wal/cluster
export PGDATA=$root/data/cluster

# The entrypoint wants a password. Nobody learns this one, and it is taken away again below.
POSTGRES_PASSWORD=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
export POSTGRES_PASSWORD

die() { echo "prime: error: $*" >&2; exit 1; }

sql() { psql --no-psqlrc --quiet --no-password --set=ON_ERROR_STOP=1 --username=postgres --dbname=postgres "$@"; }

# The server that stays is the entrypoint's own process, and says so in its pid file; the temporary one is not.
is_up() {
  [ -s "$PGDATA/postmaster.pid" ] && [ "$(sed -n 1p "$PGDATA/postmaster.pid")" = "$server" ] &&
    sed -n 8p "$PGDATA/postmaster.pid" | grep -q '^ready'
}

start_server() {
  docker-entrypoint.sh postgres -c listen_addresses= -c fsync=off -c full_page_writes=off \
    -c wal_level=minimal -c max_wal_senders=0 &
  server=$!
  tries=0
  until is_up; do
    kill -0 "$server" 2>/dev/null || die "the server did not start"
    tries=$((tries + 1))
    [ "$tries" -lt 600 ] || die "the server is not up after two minutes"
    sleep 0.2
  done
}

stop_server() {
  kill -INT "$server"
  wait "$server" || die "the server did not stop as it should"
}

# The agent's role as engines/postgres.go makes it. Its database is made too, unless this is an image with the features:
# there the extensions go into template1 first, and the database is a copy of that.
make_role_and_database() {
  version=$(sql --tuples-only --no-align --command='SHOW server_version_num')
  features=$(sql --tuples-only --no-align \
    --command="SELECT count(*) FROM pg_available_extensions WHERE name IN ('postgis', 'vector')")
  rights='LOGIN CREATEDB NOSUPERUSER NOREPLICATION NOBYPASSRLS'
  copy=''
  [ "$version" -lt 160000 ] || rights="$rights CREATEROLE"
  [ "$version" -lt 150000 ] || copy='STRATEGY file_copy'
  sql --command="CREATE ROLE sandbox $rights"
  [ "$version" -lt 150000 ] || sql --command='GRANT SET ON PARAMETER session_replication_role TO sandbox'
  [ "$version" -lt 160000 ] || sql --command="ALTER ROLE sandbox SET createrole_self_grant = 'set, inherit'"
  [ "$features" -gt 0 ] || sql --command="CREATE DATABASE sandbox OWNER sandbox $copy"
}

# No role keeps a password, and no page of the table the remains of one.
take_passwords_away() {
  for role in $(sql --tuples-only --no-align --command='SELECT quote_ident(rolname) FROM pg_authid WHERE rolpassword IS NOT NULL'); do
    sql --command="ALTER ROLE $role PASSWORD NULL"
  done
  sql --command='VACUUM FULL pg_authid' --command='CHECKPOINT'
}

# One segment of log is enough, and holds nothing of what went before.
forget_log() {
  pg_resetwal --force --pgdata="$PGDATA" >/dev/null
  rm -f "$PGDATA/postmaster.opts"
}

# What a command finds when it is run. POSTGRES_... are the entrypoint's own names; the server reads none of them.
write_probe() {
  mkdir "$home/probe"
  cat >"$home/probe/postgres" <<'END'
#!/bin/sh
printf '<%s>\n' "$@"
pwd
umask
ulimit -a
id
env | grep -v -e '^POSTGRES_' -e '^_=' -e '^SHLVL=' -e '^OLDPWD=' -e '^PWD=' | sort
END
  chmod +x "$home/probe/postgres"
}

# An entrypoint that finds a cluster should have nothing left to do but to run the server. It is asked, for to run it takes
# as long as to lay the cluster.
ask_entrypoint() {
  write_probe
  PATH=$home/probe:$PATH postgres -c 'a = b' >"$home/probe/without"
  PATH=$home/probe:$PATH docker-entrypoint.sh postgres -c 'a = b' >"$home/probe/with" 2>/dev/null || true
  if [ "$(cat "$home/probe/without")" = "$(cat "$home/probe/with")" ]; then
    : >"$home/direct"
  else
    echo "prime: the image's entrypoint does more than to run the server; every start will go through it"
  fi
  rm -rf "$home/probe"
}

start_server
make_role_and_database
take_passwords_away
stop_server
forget_log
ask_entrypoint
tar -cf "$home/cluster.tar" -C "$root" data/cluster wal/cluster
rm -rf "$PGDATA" "$POSTGRES_INITDB_WALDIR"
