package state

// NewMemory is a store with the same behaviour that forgets everything when the process ends.
func NewMemory(_ Catalog) Store { panic("unbuilt") }
