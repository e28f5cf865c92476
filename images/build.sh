#!/usr/bin/env bash
# Makes every image that sandboxd uses by default, under its default name. An image that is there stays; one that is
# not is pulled, or where no registry answers, built as a stand-in from Debian packages. README.md says what each holds.
#
# IMAGES_PULL=never skips the registry.  IMAGES_MIRROR=URL is a Debian mirror, where apt is not set to one.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
suite=trixie
base=roboco-sandbox-base:$suite
recipe_label=roboco.sandbox.recipe
standin_label=roboco.sandbox.stand-in
registry_patience=10 # seconds until a registry's first answer
pull_patience=300    # seconds for one image

say() { printf '%-34s %s\n' "$1" "$2"; }
die() { printf 'images: error: %s\n' "$*" >&2; exit 1; }

work=''
clean_up() {
  local jobs
  jobs=$(jobs -p)
  # shellcheck disable=SC2086  # a list of process ids
  [ -z "$jobs" ] || kill $jobs 2>/dev/null || true
  [ -z "$work" ] || rm -rf "$work"
}

# Of two runs at once the second waits, and then finds everything there.
take_turns() {
  command -v flock >/dev/null || return 0
  exec 9>"${XDG_RUNTIME_DIR:-/tmp}/roboco-sandbox-images.$UID.lock"
  flock --nonblock 9 || { say "images" "waiting for another run"; flock 9; }
}

# --- what is there -----------------------------------------------------------------------------------------------

# A hash of the files and folders named, below images/.
hash_of() {
  (cd "$here" && find "$@" -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -c1-16)
}

# The recipe that made an image: `upstream` for one that no recipe here made, nothing for an image that is not there.
recipe_in() {
  docker image inspect --format "{{with index .Config.Labels \"$recipe_label\"}}{{.}}{{else}}upstream{{end}}" "$1" 2>/dev/null || true
}

# Whether IMAGE is there and needs nothing. RECIPE is what it would be made by now.
is_current() {
  local image=$1 recipe=$2 have
  have=$(recipe_in "$image")
  case $have in
    '') return 1 ;;
    upstream) say "$image" "there: the upstream image" ;;
    "$recipe") say "$image" "there: $(kind_of "$image")" ;;
    *) say "$image" "there, but its recipe has changed"; return 1 ;;
  esac
}

kind_of() {
  case $(docker image inspect --format "{{index .Config.Labels \"$standin_label\"}}" "$1") in
    1) echo "a stand-in from Debian packages" ;;
    *) echo "built here" ;;
  esac
}

# --- the registry ------------------------------------------------------------------------------------------------

# Pulls IMAGE. After the first failure no registry is asked again in this run.
pull() {
  local image=$1 log=$work/pull.log pid waited=0
  [ "${IMAGES_PULL:-}" != never ] && [ ! -e "$work/no-registry" ] || return 1
  say "$image" "pulling"
  timeout "$pull_patience" docker pull "$image" >"$log" 2>&1 &
  pid=$!
  while kill -0 "$pid" 2>/dev/null; do
    if ! grep -q 'Pulling from' "$log" && [ "$waited" -ge $((registry_patience * 10)) ]; then
      kill "$pid" 2>/dev/null || true
      echo "no answer from the registry within $registry_patience s" >>"$log"
    fi
    sleep 0.1
    waited=$((waited + 1))
  done
  if wait "$pid"; then return 0; fi
  touch "$work/no-registry"
  say "$image" "cannot be pulled ($(tail -n 1 "$log" | cut -c1-120)); building stand-ins"
  return 1
}

# --- the base of all stand-ins -----------------------------------------------------------------------------------

install_mmdebstrap() {
  ! command -v mmdebstrap >/dev/null || return 0
  command -v apt-get >/dev/null ||
    die "stand-ins are built on Debian or a relative of it (apt-get is missing): pull the images, or build them elsewhere and docker load them"
  [ "$(id -u)" = 0 ] || die "mmdebstrap is missing: run 'apt-get install mmdebstrap' as root, then 'make images' again"
  say mmdebstrap "installing"
  { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends mmdebstrap; } >"$work/apt.log" 2>&1 ||
    { tail -n 20 "$work/apt.log" >&2; die "mmdebstrap could not be installed"; }
}

# The lines of sources.list for the stand-ins: the mirrors that apt is set to, at the stand-ins' own suite.
apt_sources() {
  local sites site
  # shellcheck disable=SC2016  # $(SITE) is for apt to fill in
  sites=${IMAGES_MIRROR:-$(apt-get indextargets --format '$(SITE) $(ORIGIN)' 'Created-By: Packages' 2>/dev/null |
    awk '$2 == "Debian" { print $1 }' | sort -u)}
  [ -n "$sites" ] || die "apt is set to no Debian mirror: set IMAGES_MIRROR to one's URL"
  for site in $sites; do
    case $site in
      *-security | *-security/) echo "deb $site $suite-security main" ;;
      *) echo "deb $site $suite main" ;;
    esac
  done
}

make_base() {
  local recipe lines
  recipe=$(hash_of base)
  [ "$(recipe_in "$base")" != "$recipe" ] || return 0
  install_mmdebstrap
  mapfile -t lines < <(apt_sources)
  [ "${#lines[@]}" != 0 ] || exit 1
  say "$base" "building the base of all stand-ins (Debian $suite)"
  "$here/base/rootfs.sh" "$suite" "${lines[@]}" 2>"$work/base.log" |
    docker import --change "LABEL $recipe_label=$recipe $standin_label=1" - "$base" >/dev/null ||
    { tail -n 20 "$work/base.log" >&2; die "the base could not be built"; }
  say "$base" "built"
}

# --- one function for each image ---------------------------------------------------------------------------------

# build IMAGE CONTEXT ARGUMENT... - the output goes to a log, shown only when the build fails.
build() {
  local image=$1 context=$2 log
  shift 2
  log=$work/$(tr -c 'a-z0-9\n' - <<<"$image").log
  # The host's network: the mirror that apt is set to may be reachable from there alone.
  if ! docker build --network host --tag "$image" "$@" "$context" >"$log" 2>&1; then
    tail -n 40 "$log" >&2
    return 1
  fi
}

# standin IMAGE DOCKERFILE TARGET RECIPE WHAT
standin() {
  local image=$1 dockerfile=$2 target=$3 recipe=$4 what=$5
  say "$image" "building the stand-in: $what"
  build "$image" "${6:-$here}" --file "$here/$dockerfile" ${target:+--target "$target"} --build-arg "BASE=$base" \
    --label "$recipe_label=$recipe" --label "$standin_label=1" || die "$image could not be built"
  say "$image" "built: a stand-in, $what"
}

postgres_images() {
  [ ! -e "$work/want-pg" ] || standin postgres:16-alpine postgres/Dockerfile bare "$pg_recipe" "PostgreSQL 17 with contrib"
  [ ! -e "$work/want-pg-feature" ] || standin roboco-sandbox-pg:latest postgres/Dockerfile feature "$pg_feature_recipe" \
    "PostgreSQL 17 with contrib, pgvector and PostGIS"
}

redis_images() {
  [ ! -e "$work/want-redis" ] || standin redis:8-alpine redis/Dockerfile bare "$redis_recipe" "Redis 8"
  [ ! -e "$work/want-redis-feature" ] || standin redis/redis-stack-server:latest redis/Dockerfile feature "$redis_recipe" \
    "Redis 8 with mock modules search, ReJSON, bf"
  [ ! -e "$work/want-agent" ] || standin roboco-sandbox-agent:latest agent/Dockerfile '' "$agent_recipe" "psql, redis-cli and curl"
}

build_ferretdb() {
  mkdir -p "$work/mongo" "$work/ferretdb"
  "$here/mongo/ferretdb/build.sh" "$work/mongo/ferretdb" "$work/ferretdb" >"$work/ferretdb.log" 2>&1 ||
    { tail -n 40 "$work/ferretdb.log" >&2; die "FerretDB could not be built"; }
}

mongo_image() {
  cp "$here/mongo/docker-entrypoint.sh" "$work/mongo/"
  standin mongo:8 mongo/Dockerfile '' "$mongo_recipe" "FerretDB with SQLite" "$work/mongo"
}

# built_on IMAGE UPSTREAM DOCKERFILE RECIPE - makes an image of ours on a pulled one.
built_on() {
  local image=$1 from=$2 dockerfile=$3 recipe=$4
  [ -n "$(recipe_in "$from")" ] || pull "$from" || return 1
  say "$image" "building on $from"
  build "$image" "$here" --file "$here/$dockerfile" --build-arg "BASE=$from" --label "$recipe_label=$recipe" || return 1
  say "$image" "built on $from"
}

# Upstream has no image with both pgvector and PostGIS, so this one is made here even where images can be pulled.
feature_from_upstream() {
  built_on roboco-sandbox-pg:latest pgvector/pgvector:pg16 roboco-sandbox-pg/Dockerfile "$pg_feature_recipe"
}

agent_from_upstream() {
  built_on roboco-sandbox-agent:latest "debian:$suite-slim" agent/Dockerfile "$agent_recipe"
}

# primed SHORT IMAGE ENGINE - makes of IMAGE the one in which an engine's slow first start has been made, as a worker would, under the
# same name and labels: workers find it there. One that cannot be made is no error: the engine then starts plainly.
primed() {
  local short=$1 base=$2 context=$here/../engines/primed/$3 id recipe image
  id=$(docker image inspect --format '{{.Id}}' "$base" 2>/dev/null) || return 0
  recipe=$(cd "$context" && LC_ALL=C sha256sum -- * | sha256sum | cut -c1-16)
  image=roboco-sandbox-primed:$short-$(cut -c1-12 <<<"${id#sha256:}")-${recipe:0:8}
  if [ -n "$(docker image inspect --format '{{.Id}}' "$image" 2>/dev/null)" ]; then
    say "$base" "there: primed"
    return 0
  fi
  say "$base" "priming"
  # The label on the first step is what a worker finds its own builds by.
  if sed "/^FROM /a LABEL roboco.sandbox.derivation=images-$$-$RANDOM" "$context/Dockerfile" |
    docker build --network none --file - --tag "$image" --build-arg "BASE=$base" \
    --label "roboco.sandbox.primed=$id" --label "roboco.sandbox.primed.recipe=$recipe" \
    --label "roboco.sandbox.primed.base=$base" "$context" >"$work/primed-$short.log" 2>&1; then
    say "$base" "primed"
  else
    say "$base" "could not be primed: $(tail -n 1 "$work/primed-$short.log" | cut -c1-120)"
  fi
}

# want NAME IMAGE RECIPE COMMAND... - notes that IMAGE's stand-in must be built, unless it is there or COMMAND makes it.
want() {
  local name=$1 image=$2 recipe=$3
  shift 3
  is_current "$image" "$recipe" || "$@" || touch "$work/want-$name"
}

pull_as() {
  # A stand-in whose recipe has changed was built because nothing could be pulled: it is built again.
  [ -z "$(recipe_in "$1")" ] && pull "$1" && say "$1" "pulled: the upstream image"
}

# --- the whole ---------------------------------------------------------------------------------------------------

build_standins() {
  local pids=() pid failed=0
  if [ -e "$work/want-mongo" ]; then build_ferretdb & pids+=($!); fi
  make_base
  postgres_images & pids+=($!)
  redis_images & pids+=($!)
  for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
  [ "$failed" = 0 ] || die "not all images could be built"
  [ ! -e "$work/want-mongo" ] || mongo_image
}

main() {
  docker version >/dev/null 2>&1 || die "the container engine does not answer: is Docker installed and running?"
  take_turns
  work=$(mktemp -d)
  trap clean_up EXIT
  pg_recipe=$(hash_of base postgres)
  pg_feature_recipe=$(hash_of base postgres roboco-sandbox-pg)
  redis_recipe=$(hash_of base redis)
  mongo_recipe=$(hash_of base mongo)
  agent_recipe=$(hash_of base agent)

  want pg postgres:16-alpine "$pg_recipe" pull_as postgres:16-alpine
  want pg-feature roboco-sandbox-pg:latest "$pg_feature_recipe" feature_from_upstream
  want redis redis:8-alpine "$redis_recipe" pull_as redis:8-alpine
  want redis-feature redis/redis-stack-server:latest "$redis_recipe" pull_as redis/redis-stack-server:latest
  want mongo mongo:8 "$mongo_recipe" pull_as mongo:8
  want agent roboco-sandbox-agent:latest "$agent_recipe" agent_from_upstream

  if compgen -G "$work/want-*" >/dev/null; then build_standins; fi

  primed pg postgres:16-alpine postgres
  primed pg roboco-sandbox-pg:latest postgres
}

main "$@"
