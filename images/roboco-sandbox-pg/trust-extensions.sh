#!/bin/sh
# Marks the allowlisted extensions as trusted, so that the owner of a database can create them without being a
# superuser. Usage: trust-extensions.sh DIRECTORY_OF_CONTROL_FILES
set -eu

for extension in citext pg_trgm postgis uuid-ossp vector; do
  control=$1/$extension.control
  [ -f "$control" ] || { echo "trust-extensions: $control is missing" >&2; exit 1; }
  sed -i '/^[[:space:]]*trusted[[:space:]]*=/d' "$control"
  printf '\ntrusted = true\n' >>"$control"
done
