#!/usr/bin/env bash
# Builds a static FerretDB. Usage: build.sh OUTPUT WORKDIR - WORKDIR is a directory for temporary files.
set -euo pipefail

package=github.com/FerretDB/FerretDB
here=$(cd "$(dirname "$0")" && pwd)
output=$1
work=$2

cp "$here"/go.mod "$here"/go.sum "$here"/tools.go "$work"
cd "$work"
export GOFLAGS='' GOWORK=off CGO_ENABLED=0
version=$(go list -m -f '{{.Version}}' "$package")
go mod vendor
# The module's archive lacks this file, without which the program panics.
mkdir -p "vendor/$package/build/version"
printf %s "$version" >"vendor/$package/build/version/version.txt"
go build -mod=vendor -trimpath -ldflags='-s -w' -o "$output" "$package/cmd/ferretdb"
