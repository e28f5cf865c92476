package events_test

func beginTests() []test { return nil }
