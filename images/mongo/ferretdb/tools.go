//go:build tools

// Package ferretdb pins the server that the mongo stand-in is built from. It is a module of its own, so that
// none of its dependencies become sandboxd's.
package ferretdb

import _ "github.com/FerretDB/FerretDB/cmd/ferretdb"
