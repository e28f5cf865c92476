package verbs_test

func mcpTests() []test { return nil }
