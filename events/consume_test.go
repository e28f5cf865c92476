package events_test

func consumeTests() []test { return nil }
