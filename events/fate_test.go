package events_test

func fateTests() []test { return nil }
