#!/usr/bin/env bash
# Writes the root file system that all stand-ins share, a minimal Debian 13, as a tar to standard output.
# Usage: rootfs.sh SUITE DEB_LINE... - each line as apt's sources.list has it.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
suite=$1
shift

# What every later installation in these images should do: nothing recommended, no manuals, and no LLVM (120 MB that
# only PostgreSQL's JIT compiler wants; without it the server runs without JIT).
# It is not given to mmdebstrap as --dpkgopt, which would filter each archive in Perl and cost 30 s.
# shellcheck disable=SC2016  # mmdebstrap's shell expands $1, the root of the new system
settings='
  mkdir -p "$1/etc/apt/apt.conf.d" "$1/etc/dpkg/dpkg.cfg.d"
  printf "%s\n" "APT::Install-Recommends \"false\";" "Acquire::Languages \"none\";" >"$1/etc/apt/apt.conf.d/90stand-in"
  printf "%s\n" force-unsafe-io force-confold \
    "path-exclude=/usr/share/man/*" "path-exclude=/usr/share/doc/*" "path-exclude=/usr/share/locale/*" \
    "path-exclude=/usr/lib/*/libLLVM*" "path-exclude=/usr/lib/llvm-*" \
    "path-exclude=/usr/lib/postgresql/*/lib/llvmjit*" "path-exclude=/usr/lib/postgresql/*/lib/bitcode/*" \
    >"$1/etc/dpkg/dpkg.cfg.d/90stand-in"
  rm -rf "$1"/usr/share/man/* "$1"/usr/share/doc/* "$1"/usr/share/locale/*
'

exec mmdebstrap --quiet --variant=apt --include=libeatmydata1 --format=tar \
  --aptopt='Acquire::Languages "none"' --dpkgopt=force-unsafe-io \
  --customize-hook="$settings" --customize-hook="copy-in '$here/apt-install' /usr/local/sbin" \
  "$suite" - "$@"
