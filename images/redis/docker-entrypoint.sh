#!/bin/sh
# Starts redis-server as the user redis. Any other command is run as it is, by whoever the container runs as.
set -eu

case ${1:-} in
  -* | *.conf) set -- redis-server "$@" ;;
esac

case ${1:-} in
  redis-server | redis-stack-server)
    if [ "$(id -u)" = 0 ]; then
      find . \! -user redis -exec chown redis:redis {} +
      exec setpriv --reuid=redis --regid=redis --init-groups -- "$0" "$@"
    fi
    umask 0077
    ;;
esac

exec "$@"
