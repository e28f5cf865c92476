// Package verbs is what can be asked: HTTP, server-sent events and MCP. A verb authenticates, publishes an event and
// awaits its reply; it makes no container calls and knows nothing of how a sandbox comes to be.
//
// Start reading at gateway.go and routes.go, then request.go, then whatever row concerns you: each has a file.
package verbs
