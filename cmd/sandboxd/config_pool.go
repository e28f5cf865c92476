package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/worker"
)

// poolSizes says how many ready containers a host keeps, by engine: postgres=2,redis=auto,mongo=auto:1-4.
type poolSizes map[string]worker.PoolSize

const (
	auto        = "auto"
	autoFloor   = 1
	autoCeiling = 8
	mostReady   = 100 // of one engine
)

// UnmarshalText reads a list of sizes.
func (s *poolSizes) UnmarshalText(text []byte) error {
	sizes := poolSizes{}
	known := engines.Builtin()
	for item := range strings.SplitSeq(string(text), ",") {
		name, size, _ := strings.Cut(strings.TrimSpace(item), "=")
		if _, ok := known.Lookup(name); !ok {
			return fmt.Errorf("%q is no engine: write %s, as in postgres=2,redis=auto", name, strings.Join(known.Names(), ", "))
		}
		if _, twice := sizes[name]; twice {
			return fmt.Errorf("%s is there twice", name)
		}
		n, err := readPoolSize(size)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		sizes[name] = n
	}
	*s = sizes
	return nil
}

// readPoolSize reads 3, auto, or auto:1-8.
func readPoolSize(text string) (worker.PoolSize, error) {
	bad := fmt.Errorf("%q is not a number from 0 to %d, auto, or bounds such as auto:%d-%d", text, mostReady, autoFloor, autoCeiling)
	if text == auto {
		return worker.PoolSize{Floor: autoFloor, Ceiling: autoCeiling}, nil
	}
	from, to, bounds := text, text, false
	if rest, ok := strings.CutPrefix(text, auto+":"); ok {
		if from, to, bounds = strings.Cut(rest, "-"); !bounds {
			return worker.PoolSize{}, bad
		}
	}
	floor, err := strconv.Atoi(from)
	ceiling, err2 := strconv.Atoi(to)
	if err != nil || err2 != nil || floor < 0 || ceiling < floor || ceiling > mostReady {
		return worker.PoolSize{}, bad
	}
	return worker.PoolSize{Floor: floor, Ceiling: ceiling}, nil
}
