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
compose down --volumes --remove-orphans
rm -f "$settings" "$SANDBOXD_ACL_FILE"
