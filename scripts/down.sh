#!/usr/bin/env bash
# Takes down what up.sh brought up, sandboxes, data and passwords included.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/compose.sh"

[ -e "$settings" ] || { echo "nothing is up: there is no $settings"; exit 0; }
made_here || die "$settings was not made by scripts/up.sh: it is left alone"
project=$(setting COMPOSE_PROJECT_NAME)

# Nobody may make another sandbox while they are removed.
compose stop gateway worker
docker ps --all --quiet --filter label=roboco.sandbox=1 --filter "label=com.docker.compose.project=$project" |
  xargs -r docker rm --force --volumes >/dev/null
unset COMPOSE_IGNORE_ORPHANS # it cannot be combined with what follows
# A container of an agent, which is not ours, may hold the agents' network; nothing else may stay for that.
if ! compose down --volumes --remove-orphans; then
  of=(--quiet --filter "label=com.docker.compose.project=$project")
  docker ps --all "${of[@]}" | xargs -r docker rm --force --volumes >/dev/null
  docker volume ls "${of[@]}" | xargs -r docker volume rm >/dev/null
  echo "down.sh: a network stays, for containers that are not ours are on it: docker network rm it when they are gone" >&2
fi
rm -f "$settings" "$SANDBOXD_ACL_FILE"
