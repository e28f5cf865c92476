package events_test

func publishTests() []test { return nil }
