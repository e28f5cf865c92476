// Package system is a whole sandboxd in one process, for commands that measure one: a gateway and workers over a Redis and
// a container engine that are given. It may import everything of ours. Start reading at Start.
package system
