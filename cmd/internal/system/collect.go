package system

import (
	"os"
	"runtime/debug"
)

// heapGrowth is how much of garbage, in percent of what is alive, may gather before it is collected.
const heapGrowth = 200

// CollectLess has garbage collected half as often as Go would, unless GOGC says otherwise: a gateway or a worker keeps little and
// makes much that is garbage at once. It is for a server's main, and for programs that measure one.
func CollectLess() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapGrowth)
	}
}
