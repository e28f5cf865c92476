package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// options are what the command line says.
type options struct {
	rounds, hits   int
	sets           []set
	parts          map[string]bool
	agents         int
	growth         []int
	throughputFor  time.Duration
	out            string
	peers, plotter string
}

// part is what can be measured by itself.
type part struct {
	name, what string
	do         func(*bench, context.Context) error
}

func parts() []part {
	return []part{
		{"rounds", "floor, sandboxd and its peers, in turn", (*bench).rounds},
		{"memory", "the memory of an idle pooled set", (*bench).memory},
		{"crowd", "agents that ask at once", (*bench).crowd},
		{"throughput", "hits a second", (*bench).throughput},
		{"growth", "what grows with the sandboxes alive", (*bench).growth},
	}
}

// parse reads the command line; it has printed the reason when it fails.
func parse(args []string, out io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.IntVar(&o.rounds, "rounds", 7, "how often each thing is measured")
	flags.IntVar(&o.hits, "hits", 60, "requests that are hits, in each round and for each set")
	flags.IntVar(&o.agents, "agents", 20, "agents that ask at once")
	flags.DurationVar(&o.throughputFor, "throughput-for", 5*time.Second, "how long hits are counted for each number of workers")
	flags.StringVar(&o.out, "out", "", "also write the report to this file, and the plot beside it, as .svg")
	flags.StringVar(&o.peers, "peers", ".bin/bench-peers", "the program of the peers; empty leaves them out")
	flags.StringVar(&o.plotter, "plotter", ".bin/bench-plot", "the program that draws the plot")
	named := flags.String("sets", "all", "sets to measure in rounds: "+strings.Join(setNames(), ", "))
	wanted := flags.String("parts", "all", "what to measure: "+strings.Join(partNames(), ", "))
	flags.Usage = func() {
		fmt.Fprintln(out, "bench measures what users of sandboxd wait for, on this machine and with its container engine, beside what the\n"+
			"machine itself costs and what other tools take, and prints tables. It takes a quarter of an hour, and fails when a\n"+
			"promise is broken. With less than everything measured it is faster, and says what it could not tell.\n\nUsage: bench [flags]")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return o, err //nolint:wrapcheck // it is printed already
	}
	err := o.check(flags, *named, *wanted)
	if err != nil {
		fmt.Fprintf(out, "bench: %v; bench --help lists the flags\n", err)
	}
	return o, err
}

func (o *options) check(flags *flag.FlagSet, named, wanted string) error {
	if flags.NArg() > 0 {
		return fmt.Errorf("it takes no arguments")
	}
	if o.rounds < 1 || o.hits < 1 || o.agents < pooledSets || o.throughputFor <= 0 {
		return fmt.Errorf("rounds and hits are 1 or more, agents %d or more, and the time positive", pooledSets)
	}
	o.growth = []int{1, 10, 50}
	o.parts = map[string]bool{}
	if err := choose(wanted, partNames(), func(i int) { o.parts[parts()[i].name] = true }); err != nil {
		return err
	}
	return choose(named, setNames(), func(i int) { o.sets = append(o.sets, sets()[i]) })
}

// choose calls take with the place of each name that is listed, in the order of all.
func choose(list string, all []string, take func(int)) error {
	listed := map[string]bool{}
	for name := range strings.SplitSeq(list, ",") {
		listed[strings.TrimSpace(name)] = true
	}
	for i, name := range all {
		if listed[name] || listed["all"] {
			take(i)
		}
		delete(listed, name)
	}
	delete(listed, "all")
	for _, unknown := range slices.Sorted(maps.Keys(listed)) {
		return fmt.Errorf("%q is none of %s", unknown, strings.Join(all, ", "))
	}
	return nil
}

func partNames() []string {
	var names []string
	for _, p := range parts() {
		names = append(names, p.name)
	}
	return names
}

// set is what an agent asks for.
type set struct {
	name     string
	engines  []string
	features map[string][]string
}

const (
	setPostgres = "postgres"
	setRedis    = "redis"
	setMongo    = "mongo"
	setFull     = "full"
	setVector   = "vector"
)

func sets() []set {
	return []set{
		{name: setPostgres, engines: []string{"postgres"}},
		{name: setVector, engines: []string{"postgres"}, features: map[string][]string{"postgres": {"vector"}}},
		{name: setRedis, engines: []string{"redis"}},
		{name: setMongo, engines: []string{"mongo"}},
		{name: setFull, engines: []string{"postgres", "redis", "mongo"}},
	}
}

func setNames() []string {
	var names []string
	for _, s := range sets() {
		names = append(names, s.name)
	}
	return names
}

// title is the set as the report names it.
func (s set) title() string { return setTitle(s.name) }

func setTitle(name string) string {
	switch name {
	case setFull:
		return "full set"
	case setVector:
		return "postgres with vector"
	}
	return name + " alone"
}
