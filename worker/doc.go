// Package worker does what events ask for: it consumes the stream, guards requests, ensures sandboxes, releases them,
// and keeps the engine clean with its janitor.
//
// It imports events, engines and state. Start reading at worker.go, then request.go, then run.go.
package worker
