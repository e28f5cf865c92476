#!/bin/sh
# Starts FerretDB under the names of the upstream mongo image: MONGO_INITDB_ROOT_USERNAME and
# MONGO_INITDB_ROOT_PASSWORD make the root user, in the database admin. `mongod` and its flags are accepted, so that
# one command serves both images; --port and --bind_ip are followed, the other flags are named and ignored.
set -eu

die() { echo "docker-entrypoint: error: $*" >&2; exit 1; }

# Sets the listening address from mongod's flags. All arguments after `mongod`.
read_flags() {
  ip='' port=27017 ignored=''
  while [ $# -gt 0 ]; do
    case $1 in
      --port=*) port=${1#*=} ;;
      --bind_ip=*) ip=${1#*=} ;;
      --port) port=${2:?--port needs a value}; shift ;;
      --bind_ip) ip=${2:?--bind_ip needs a value}; shift ;;
      --bind_ip_all) ip='' ;;
      *) ignored="$ignored $1" ;;
    esac
    shift
  done
  case $ip in 0.0.0.0 | \* | *,*) ip='' ;; esac
  [ -z "$ignored" ] || echo "docker-entrypoint: ignored by this stand-in:$ignored"
}

case ${1:-} in -*) set -- mongod "$@" ;; esac
[ "${1:-}" = mongod ] || exec "$@"

if [ "$(id -u)" = 0 ]; then
  find /data/db \! -user mongodb -exec chown mongodb:mongodb {} +
  exec setpriv --reuid=mongodb --regid=mongodb --init-groups -- "$0" "$@"
fi

# FerretDB takes an empty password without a word, so it is refused here.
[ -n "${MONGO_INITDB_ROOT_USERNAME:-}" ] || die "MONGO_INITDB_ROOT_USERNAME is empty: set it"
[ -n "${MONGO_INITDB_ROOT_PASSWORD:-}" ] || die "MONGO_INITDB_ROOT_PASSWORD is empty: set it"

shift
read_flags "$@"

# SQLite needs room for its log beside its data, even to drop what has filled it. So a database may take less than half
# of the file system, in pages of 4 KiB; past that an insert is refused, and everything else goes on. What the server
# itself takes is held to what its data leave, where they are in the container's memory.
size=$(df --output=size --block-size=1K /data/db | tail -n 1)
pages=$((size * 45 / 100 / 4))
[ "$pages" -le 4294967294 ] || pages=4294967294
export GOMEMLIMIT="${GOMEMLIMIT:-$((size * 3 / 4))KiB}"

export FERRETDB_HANDLER=sqlite FERRETDB_SQLITE_URL="file:/data/db/?_pragma=max_page_count($pages)" FERRETDB_STATE_DIR=/data/db
export FERRETDB_LISTEN_ADDR="$ip:$port" FERRETDB_DEBUG_ADDR=- FERRETDB_TELEMETRY=disable
export FERRETDB_TEST_ENABLE_NEW_AUTH=true FERRETDB_SETUP_DATABASE=admin
export FERRETDB_SETUP_USERNAME="$MONGO_INITDB_ROOT_USERNAME" FERRETDB_SETUP_PASSWORD="$MONGO_INITDB_ROOT_PASSWORD"
exec ferretdb
