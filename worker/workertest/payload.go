package workertest

import (
	"encoding/json"

	"github.com/roboco/sandboxd/engines"
)

// PasswordIn is the agent's password in a recorded payload; each container has its own, so it names the container.
func PasswordIn(payload json.RawMessage) string {
	var i engines.Instance
	if json.Unmarshal(payload, &i) != nil {
		return ""
	}
	return i.Password
}
