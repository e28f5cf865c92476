#!/usr/bin/env bash
# Brings sandboxd up with its stores (docker-compose.yml), waits until it is ready and says how to call it. Running it
# again changes only what has changed.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/compose.sh"
ready_within=180 # seconds

secret() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }

# The passwords and the first operator's token, in a file that only its owner reads. It is made once.
write_settings() {
  if [ -e "$settings" ]; then
    made_here || die "$settings is there and was not made by this script: move it away, or name another file in SANDBOXD_ENV_FILE"
    return 0
  fi
  local project=${COMPOSE_PROJECT_NAME:-sandboxd}
  (
    umask 077
    cat >"$settings.new" <<ENV
$mark, removed by scripts/down.sh
COMPOSE_PROJECT_NAME=$project
SANDBOXD_POSTGRES_PASSWORD=$(secret)
SANDBOXD_REDIS_WORKER_PASSWORD=$(secret)
SANDBOXD_REDIS_GATEWAY_PASSWORD=$(secret)
ROBOCO_SANDBOX_OPERATOR_TOKEN=$(secret)
SANDBOXD_ACL_FILE=$SANDBOXD_ACL_FILE
ENV
    mv "$settings.new" "$settings"
  )
}

# write_users makes the ACL file of Redis from its template. Only hashes of random passwords stand in it, and Redis, which is
# another user, must be able to read it. It is written in place, for the container holds on to the file.
write_users() {
  local choreographer=off
  hash() { setting "$1" | tr -d '\n' | sha256sum | cut -d' ' -f1; }
  [ -z "$(setting SANDBOXD_REDIS_CHOREOGRAPHER_PASSWORD)" ] ||
    choreographer="on #$(hash SANDBOXD_REDIS_CHOREOGRAPHER_PASSWORD)"
  sed -e '/^#/d' -e "s/@CELL@/${ROBOCO_SANDBOX_CELL:-sandbox}/g" -e "s/@WORKER@/$(hash SANDBOXD_REDIS_WORKER_PASSWORD)/" \
    -e "s/@GATEWAY@/$(hash SANDBOXD_REDIS_GATEWAY_PASSWORD)/" -e "s/@CHOREOGRAPHER@/$choreographer/" \
    scripts/redis.acl >"$settings.new"
  users_changed=false
  if [ -e "$SANDBOXD_ACL_FILE" ] && ! cmp -s "$settings.new" "$SANDBOXD_ACL_FILE"; then users_changed=true; fi
  cat "$settings.new" >"$SANDBOXD_ACL_FILE"
  chmod 644 "$SANDBOXD_ACL_FILE"
  rm "$settings.new"
}

# The image holds two static programs and nothing else; the layer cache makes an unchanged one free.
build_image() {
  local context=.bin/image arch
  arch=$(docker version --format '{{.Server.Arch}}')
  mkdir -p "$context"
  CGO_ENABLED=0 GOOS=linux GOARCH=$arch go build -o "$context/" ./cmd/sandboxd ./cmd/sandbox
  docker build --tag sandboxd:latest --file images/sandboxd/Dockerfile "$context" >"$context.log" 2>&1 ||
    { cat "$context.log" >&2; die "the image could not be built"; }
}

# check_settings has the program judge every setting of the caller's environment, before anything is started.
check_settings() {
  local name pass=()
  # Files of the host, which the containers do not see.
  [ -z "${ROBOCO_SANDBOX_TLS_CERT:-}${ROBOCO_SANDBOX_TLS_KEY:-}" ] ||
    die "ROBOCO_SANDBOX_TLS_CERT and _KEY name files that the gateway's container does not have: mount them with a compose override, or put a proxy in front"
  for name in $(compgen -e ROBOCO_SANDBOX_ || true); do pass+=(--env "$name"); done
  docker run --rm --network none --user 65534:65534 "${pass[@]}" sandboxd:latest check >/dev/null ||
    die "nothing was started: correct the settings named above"
  for name in ROBOCO_SANDBOX_LISTEN ROBOCO_SANDBOX_WORKER_LISTEN ROBOCO_SANDBOX_COMPOSE_PROJECT; do
    [ -z "${!name:-}" ] || echo "up.sh: $name has no effect here; the gateway's port is SANDBOXD_PORT, the project COMPOSE_PROJECT_NAME" >&2
  done
}

# tell shows why services do not come up: their own last lines.
tell() { compose logs --no-color --tail=15 "$@" >&2; }

# crashing lists the services that were started again and again.
crashing() {
  local service id
  for service in worker gateway; do
    for id in $(compose ps -q "$service"); do
      [ "$(docker inspect --format '{{.RestartCount}}' "$id")" -lt 3 ] || echo "$service"
    done
  done | sort -u
}

# not_ready lists the services that are not ready yet.
not_ready() {
  local service id
  for service in worker gateway; do
    for id in $(compose ps -q "$service"); do
      [ "$(docker inspect --format '{{.State.Health.Status}}' "$id")" = healthy ] || echo "$service"
    done
  done
}

await() {
  local deadline=$((SECONDS + ready_within)) waiting failed
  while waiting=$(not_ready | sort -u | tr '\n' ' '); [ -n "$waiting" ]; do
    failed=$(crashing)
    if [ -n "$failed" ]; then
      # shellcheck disable=SC2086 # a list
      tell $failed
      die "does not stay up; its last lines are above: $failed"
    fi
    if [ $SECONDS -ge $deadline ]; then
      # shellcheck disable=SC2086 # a list
      tell $waiting
      die "not ready after $ready_within s; the last lines are above: $waiting"
    fi
    sleep 0.5
  done
}

write_settings
write_users
build_image
check_settings
compose up --detach || { tell migrate; die "the services were not started; why stands above"; }
if $users_changed; then compose restart redis; fi # it reads its users when it starts
await
cat <<EOT
sandboxd is ready.
  gateway         http://127.0.0.1:${SANDBOXD_PORT:-8420}
  operator token  ROBOCO_SANDBOX_OPERATOR_TOKEN in $(realpath "$settings")
  agents' network ${ROBOCO_SANDBOX_NETWORK:-roboco_default}
EOT
