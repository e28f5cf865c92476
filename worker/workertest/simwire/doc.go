// Package simwire serves a container engine, in tests a simulated one, to other processes over a unix socket: the engine
// then outlives the kill of any worker process that uses it. Nothing in it is secured, and nothing but tests uses it.
//
// Each call is one HTTP request with JSON arguments; the answer is a stream of JSON frames, the last of which is marked.
package simwire
