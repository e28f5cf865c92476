#!/usr/bin/env bash
# Writes the root file system that all stand-ins share, a minimal Debian 13, as a tar to standard output.
# Usage: rootfs.sh SUITE DEB_LINE... - each line as apt's sources.list has it.
set -euo pipefail

suite=$1
shift

# What every later `apt-get install` in these images should do too: nothing recommended, no fsync, no manuals.
write_settings() {
  # shellcheck disable=SC2016  # mmdebstrap's shell expands $1, the root of the new system
  printf '%s' '
    mkdir -p "$1/etc/apt/apt.conf.d" "$1/etc/dpkg/dpkg.cfg.d"
    printf "%s\n" "APT::Install-Recommends \"false\";" "Acquire::Languages \"none\";" >"$1/etc/apt/apt.conf.d/90stand-in"
    printf "%s\n" force-unsafe-io force-confold "path-exclude=/usr/share/man/*" "path-exclude=/usr/share/doc/*" \
      "path-exclude=/usr/share/locale/*" >"$1/etc/dpkg/dpkg.cfg.d/90stand-in"
    rm -rf "$1"/usr/share/man/* "$1"/usr/share/doc/* "$1"/usr/share/locale/*
  '
}

# path-exclude is not given to mmdebstrap itself: it would filter each archive in Perl, which costs 30 s.
exec mmdebstrap --quiet --variant=apt --format=tar \
  --aptopt='Acquire::Languages "none"' --dpkgopt=force-unsafe-io \
  --customize-hook="$(write_settings)" \
  "$suite" - "$@"
