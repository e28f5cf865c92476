// Package failpoint names the moments before and after every call that a sandboxd process makes to Redis, to the container
// engine, to the servers in the containers and to the durable store, and ends the process at one of them as SIGKILL would.
//
// The names come from the calls themselves: a Redis hook and decorators of the interfaces see every call, so a new step
// has its points without a line here. Only a build with the tag failpoints uses this package; the product has none of it.
// The tests here run the crash matrix: see docs/reliability.md.
package failpoint
