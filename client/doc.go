// Package client calls the gateway over HTTP, and holds the wire types that the gateway and the command line share.
//
// It imports nothing of ours. Start reading at envelope.go, then client.go, then request.go; mcp.go is the tool that
// agents call, whatever carries it.
package client
