// Package statetest holds every store of state to one suite, and starts the Postgres that tests need.
package statetest
