package main

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
)

// prefix is of the names that are ours alone: one that is not known is a misspelling.
const prefix = "ROBOCO_SANDBOX_"

// clientNames are read by agents and by the CLI; the server finds them in its environment and looks away.
func clientNames() []string {
	return []string{"ROBOCO_SANDBOX_SERVICES_AVAILABLE", "ROBOCO_SANDBOX_URL", "ROBOCO_SANDBOX_TOKEN", "ROBOCO_SANDBOX_CA"}
}

// settingError says which variable stops the start, and why. It never holds a secret's value.
type settingError struct {
	Name, Problem string
}

// Error names the variable and the problem.
func (e *settingError) Error() string { return e.Name + ": " + e.Problem }

// loadConfig reads the environment, given as KEY=value pairs. Its error joins a *settingError for each bad variable.
func loadConfig(environ []string) (config, error) {
	vars := env.ToMap(environ)
	cfg := config{images: readImages(vars)}
	problems := unknownNames(vars)
	if err := env.ParseWithOptions(&cfg, env.Options{Environment: vars}); err != nil {
		problems = append(problems, parseProblems(err)...)
	}
	if len(problems) == 0 {
		problems = cfg.check()
	}
	return cfg, errors.Join(problems...)
}

// variable is one that the server knows: its name, its default and what it is for.
type variable struct{ Name, Default, About string }

// variables lists all that the server knows, in the order of the struct, the engines' images last.
func variables() []variable {
	t := reflect.TypeFor[config]()
	var all []variable
	for field := range t.Fields() {
		tag := field.Tag
		if name := tag.Get("env"); name != "" {
			all = append(all, variable{Name: name, Default: tag.Get("envDefault"), About: tag.Get("about")})
		}
	}
	for _, e := range engines.Builtin() {
		bare, feature := e.ImageSettings()
		all = append(all, variable{Name: bare, Default: e.Bare, About: "the image of a bare " + e.Name})
		if feature != "" {
			all = append(all, variable{Name: feature, Default: e.Feature, About: "the image of a " + e.Name + " with features"})
		}
	}
	return all
}

func readImages(vars map[string]string) map[string]imagePair {
	images := map[string]imagePair{}
	for _, e := range engines.Builtin() {
		bare, feature := e.ImageSettings()
		p := imagePair{bare: vars[bare]}
		if feature != "" {
			p.feature = vars[feature]
		}
		if p != (imagePair{}) {
			images[e.Name] = p
		}
	}
	return images
}

// unknownNames gives an error for each variable of our prefix that nothing reads, with the nearest that something does.
func unknownNames(vars map[string]string) []error {
	var ours []string
	for _, v := range variables() {
		if !strings.HasPrefix(v.Name, prefix) {
			continue
		}
		ours = append(ours, v.Name)
	}
	var unknown []string
	for name := range vars {
		if strings.HasPrefix(name, prefix) && !slices.Contains(ours, name) && !slices.Contains(clientNames(), name) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	problems := make([]error, 0, len(unknown))
	for _, name := range unknown {
		problem := "no such setting"
		if like := nearest(name, ours); like != "" {
			problem += "; the nearest is " + like
		}
		problems = append(problems, &settingError{name, problem})
	}
	return problems
}

// parseProblems turns the parser's errors, which name struct fields, into ours, which name variables.
func parseProblems(err error) []error {
	var all env.AggregateError
	if !errors.As(err, &all) {
		return []error{err}
	}
	problems := make([]error, 0, len(all.Errors))
	for _, e := range all.Errors {
		var parse env.ParseError
		if !errors.As(e, &parse) {
			problems = append(problems, e)
			continue
		}
		field, _ := reflect.TypeFor[config]().FieldByName(parse.Name)
		problems = append(problems, &settingError{field.Tag.Get("env"), parse.Err.Error()})
	}
	return problems
}

// check judges what parsing cannot: choices, ranges, addresses.
func (c config) check() []error {
	var problems []error
	must := func(ok bool, name, problem string) {
		if !ok {
			problems = append(problems, &settingError{name, problem})
		}
	}
	oneOf := func(value, name string, allowed ...string) {
		must(slices.Contains(allowed, value), name, fmt.Sprintf("%q is none of %s", value, strings.Join(allowed, ", ")))
	}
	oneOf(c.Owner, "ROBOCO_SANDBOX_OWNER", ownerContainer, ownerLease)
	oneOf(c.Publish, "ROBOCO_SANDBOX_PUBLISH", publishNone, publishLoopback)
	oneOf(c.Primed, "ROBOCO_SANDBOX_PRIMED", primedOn, primedOff)
	oneOf(c.LogLevel, "ROBOCO_SANDBOX_LOG_LEVEL", "debug", "info", "warn", "error")
	oneOf(c.LogFormat, "ROBOCO_SANDBOX_LOG_FORMAT", formatJSON, formatConsole)

	must(c.Rate >= 0 && c.Rate <= 1e6, "ROBOCO_SANDBOX_RATE", "is not a number from 0 to 1000000")
	must(c.Pids >= 16, "ROBOCO_SANDBOX_PIDS", "the least is 16")
	must(c.Slots >= 1, "ROBOCO_SANDBOX_SLOTS", "the least is 1")
	must(c.Max >= 0, "ROBOCO_SANDBOX_MAX", "must not be negative")
	must(c.AgentRequests >= 1, "ROBOCO_SANDBOX_AGENT_REQUESTS", "the least is 1")
	must(c.Creates >= 0, "ROBOCO_SANDBOX_CREATES", "must not be negative")
	must(c.Pulls >= 1, "ROBOCO_SANDBOX_PULLS", "the least is 1")
	must(c.QueueTimeout >= time.Second && c.QueueTimeout <= longestQueue, "ROBOCO_SANDBOX_QUEUE_TIMEOUT", "is not from 1s to "+longestQueue.String())
	must(c.AcceptTimeout > 0, "ROBOCO_SANDBOX_ACCEPT_TIMEOUT", "must be more than nothing")
	must(c.TTL > 0, "ROBOCO_SANDBOX_TTL", "must be more than nothing")
	must(c.Grace >= 0, "ROBOCO_SANDBOX_GRACE", "must not be negative")
	must(c.JanitorInterval > 0, "ROBOCO_SANDBOX_JANITOR_INTERVAL", "must be more than nothing")
	must(c.Drain >= 0, "ROBOCO_SANDBOX_DRAIN", "must not be negative")
	must(c.Retain > 0, "ROBOCO_SANDBOX_RETAIN", "must be more than nothing")

	must(cellPattern().MatchString(c.Cell), "ROBOCO_SANDBOX_CELL", fmt.Sprintf("%q is not 1 to 40 of a-z, 0-9 and -", c.Cell))
	for _, l := range []struct{ name, addr string }{
		{"ROBOCO_SANDBOX_LISTEN", c.Listen}, {"ROBOCO_SANDBOX_WORKER_LISTEN", c.WorkerListen},
	} {
		_, port, err := net.SplitHostPort(l.addr)
		must(err == nil && port != "", l.name, fmt.Sprintf("%q is not host:port", l.addr))
	}
	c.checkTLS(must)
	if _, err := c.sealKeys(); err != nil {
		must(false, "ROBOCO_SANDBOX_SEAL_KEYS", err.Error())
	}
	return append(problems, c.checkURLs()...)
}

// longestQueue leaves time to provision within the longest wait of a caller (18 minutes), even after a wait in every line.
const longestQueue = 4 * time.Minute

func cellPattern() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,39}$`) }

// checkURLs judges the stores' addresses. What is wrong with one is not repeated, for it may hold a password.
func (c config) checkURLs() []error {
	var problems []error
	if calls, blocking, err := events.Open(c.RedisURL); err != nil { // nothing is dialled
		problems = append(problems, &settingError{"ROBOCO_REDIS_URL", err.Error()})
	} else {
		_, _ = calls.Close(), blocking.Close()
	}
	if c.DatabaseURL != "" {
		u, err := url.Parse(c.DatabaseURL)
		if err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") || (u.Host == "" && u.Query().Get("host") == "") {
			problems = append(problems, &settingError{"ROBOCO_DATABASE_URL", "is not of the form postgres://user:password@host:port/database"})
		}
	}
	return problems
}

// nearest is the candidate with the least edit distance; empty where none is near enough to have been meant.
func nearest(name string, candidates []string) string {
	best, least := "", len(strings.TrimPrefix(name, prefix))/2+1
	for _, c := range candidates {
		if d := distance(name, c); d < least {
			best, least = c, d
		}
	}
	return best
}

// distance is how many letters must be changed, added or dropped to make a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := diagonal
			if a[i-1] != b[j-1] {
				change++
			}
			diagonal = row[j]
			row[j] = min(change, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}

// withDefaults adds what the environment leaves unset or empty.
func withDefaults(environ []string, defaults map[string]string) []string {
	vars := env.ToMap(environ)
	all := slices.Clone(environ)
	for name, value := range defaults {
		if vars[name] == "" {
			all = slices.DeleteFunc(all, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
			all = append(all, name+"="+value)
		}
	}
	return all
}
