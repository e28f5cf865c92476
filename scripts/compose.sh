# Sourced by up.sh and down.sh: where things are, and which compose there is.
# shellcheck shell=bash
cd "$(dirname "${BASH_SOURCE[0]}")/.."

settings=${SANDBOXD_ENV_FILE:-.env}
mark='# made by scripts/up.sh'
# The users of Redis, beside the settings; up.sh makes it.
SANDBOXD_ACL_FILE=$(realpath --no-symlinks "$settings.acl")
export SANDBOXD_ACL_FILE
export COMPOSE_IGNORE_ORPHANS=true # sandboxes carry the project's labels on purpose

die() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }

# made_here says whether the settings file is up.sh's own.
made_here() { head -n 1 "$settings" | grep -q "^$mark"; }

docker version >/dev/null 2>&1 || die "the container engine does not answer: is Docker running?"

# compose ARGUMENT... runs whichever compose there is.
compose() {
  if docker compose version >/dev/null 2>&1; then
    docker compose --env-file "$settings" "$@"
  elif command -v docker-compose >/dev/null; then
    docker-compose --env-file "$settings" "$@"
  else
    die "neither 'docker compose' nor 'docker-compose' is installed"
  fi
}

# setting NAME is a value of the settings file.
setting() { sed -n "s/^$1=//p" "$settings"; }
