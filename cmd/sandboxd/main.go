// Command sandboxd is the server: worker, gateway, dev, migrate.
package main

func main() {}
