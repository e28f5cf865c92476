// Package workertest runs the real worker and the real bus against a simulated container engine, breaks what can
// break, and judges the history of what happened.
//
//   - Sim is the container engine: names, lives, outages, ambiguous errors; it keeps the truth for the checker.
//   - Process is one worker's reach to the world, so that a worker can be killed or stopped at any line.
//   - Chaos lets agents live and faults happen, waits until nothing is under way, and checks.
//   - Past and the check functions judge the audit stream against the truth.
//
// Start reading at chaos.go, then at sim.go and history.go.
package workertest
