package engines

// Redis is the redis engine.
func Redis() Engine {
	return Engine{Name: "redis", Short: "redis", Port: 6379}
}
