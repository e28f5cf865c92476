// Package engines holds what can run: one file per kind of service (image, port, limits, wire probes, features,
// environment names), the registry of them all, and the words that describe a container without naming a runtime.
//
// It imports nothing of ours. Start reading at engine.go, then at one engine, then at registry.go.
package engines
