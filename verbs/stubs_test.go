package verbs_test

func sandboxTests() []test { return nil }
func spawnTests() []test   { return nil }
func logTests() []test     { return nil }
func historyTests() []test { return nil }
func flagTests() []test    { return nil }
func healthTests() []test  { return nil }
func inputTests() []test   { return nil }
func mcpTests() []test     { return nil }
