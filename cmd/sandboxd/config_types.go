package main

import (
	"fmt"
	"math"
	"strconv"

	"github.com/docker/go-units"
)

// toggle is a switch that is written true or false, and no other way.
type toggle bool

// UnmarshalText reads true or false.
func (t *toggle) UnmarshalText(text []byte) error {
	switch string(text) {
	case "true":
		*t = true
	case "false":
		*t = false
	default:
		return fmt.Errorf("%q is neither true nor false", text)
	}
	return nil
}

// size is a number of bytes, written as Docker does: 512m, 2g, 1073741824.
type size int64

// smallest is the least memory in which every engine starts.
const smallest = size(64 * units.MiB)

// UnmarshalText reads a size.
func (s *size) UnmarshalText(text []byte) error {
	n, err := units.RAMInBytes(string(text))
	if err != nil {
		return fmt.Errorf("%q is not a size such as 512m", text)
	}
	if size(n) < smallest {
		return fmt.Errorf("%q is too little: the least is 64m", text)
	}
	*s = size(n)
	return nil
}

// cores is a number of processors in thousand millionths, written as a decimal: 1, 0.5.
type cores int64

const oneCore = 1e9

// UnmarshalText reads a number of processors.
func (c *cores) UnmarshalText(text []byte) error {
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil || math.IsNaN(f) || f < 0.01 || f > 1024 {
		return fmt.Errorf("%q is not a number of processors from 0.01 to 1024", text)
	}
	*c = cores(math.Round(f * oneCore))
	return nil
}
