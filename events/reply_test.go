package events_test

func replyTests() []test { return nil }
