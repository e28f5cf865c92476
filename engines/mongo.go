package engines

// Mongo is the mongo engine.
func Mongo() Engine {
	return Engine{Name: "mongo", Short: "mongo", Port: 27017}
}
