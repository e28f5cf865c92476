package engines

// Postgres is the postgres engine.
func Postgres() Engine {
	return Engine{Name: "postgres", Short: "pg", Port: 5432}
}
