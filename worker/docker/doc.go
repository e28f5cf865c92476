// Package docker fulfils what a worker needs of a container engine by talking to Docker (API 1.41 or later).
//
// It is the one place that opens the engine's socket, and it imports only engines of ours. Every container it makes is
// hardened in one place, create.go. Errors are those of package engines, classified in errors.go: a caller can tell
// "there is none" from "nothing is known".
//
// Start reading at client.go, then create.go, then remove.go.
package docker
