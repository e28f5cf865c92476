package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/google/uuid"
	"gopkg.in/yaml.v3"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/state"
	"github.com/roboco/sandboxd/verbs"
)

// seed is what dev's store begins with.
type seed struct {
	Projects []seedProject `yaml:"projects"`
	Agents   []seedAgent   `yaml:"agents"`
}

type seedProject struct {
	Slug       string              `yaml:"slug"`
	Name       string              `yaml:"name"`
	Services   []string            `yaml:"sandbox_services"`
	Extensions map[string][]string `yaml:"sandbox_extensions"`
}

type seedAgent struct {
	Slug    string `yaml:"slug"`
	Role    string `yaml:"role"`
	Project string `yaml:"project"` // what it works on from the start; empty for nothing
	Task    string `yaml:"task"`
}

// choreographer is the agent that dev speaks as.
const choreographer = "choreographer"

// demoSeed is one project opted into everything and one developer at work on it, named for the port: a container's name
// is the agent's, and another dev may run on this machine.
func demoSeed(port int) seed {
	return seed{
		Projects: []seedProject{{Slug: "demo", Name: "Demo", Services: engines.Builtin().Names()}},
		Agents:   []seedAgent{{Slug: fmt.Sprintf("dev-%d", port), Role: verbs.RoleDeveloper, Project: "demo", Task: "T-demo"}},
	}
}

// readSeed reads the file, if there is one.
func readSeed(file string) (seed, error) {
	if file == "" {
		return seed{}, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return seed{}, fmt.Errorf("--file: %w", err)
	}
	var s seed
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&s); err != nil && !errors.Is(err, io.EOF) {
		return seed{}, fmt.Errorf("--file %s: %s", file, seedWords(err))
	}
	if err := s.complete(); err != nil {
		return seed{}, fmt.Errorf("--file %s: %w", file, err)
	}
	return s, nil
}

// complete fills in what an agent's entry may leave out, and refuses work on what the file does not have.
func (s seed) complete() error {
	slugs := make([]string, len(s.Projects))
	for i, p := range s.Projects {
		slugs[i] = p.Slug
	}
	for i, a := range s.Agents {
		switch {
		case a.Project == "" && a.Task != "":
			return fmt.Errorf("agent %s has a task, %s, and no project", a.Slug, a.Task)
		case a.Project != "" && !slices.Contains(slugs, a.Project):
			return fmt.Errorf("agent %s: project %q is none of this file's: %s", a.Slug, a.Project, orNone(strings.Join(slugs, ", ")))
		}
		if a.Role == "" {
			s.Agents[i].Role = verbs.RoleDeveloper
		}
		if a.Project != "" && a.Task == "" {
			s.Agents[i].Task = "T-" + a.Slug
		}
	}
	return nil
}

// seedWords says what is wrong with the file in its own terms, where the decoder names types of this program.
func seedWords(err error) string {
	text := strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "yaml: unmarshal errors:")), " ")
	for _, t := range []reflect.Type{reflect.TypeFor[seedProject](), reflect.TypeFor[seedAgent](), reflect.TypeFor[seed]()} {
		var names []string
		for f := range t.Fields() {
			names = append(names, f.Tag.Get("yaml"))
		}
		text = strings.ReplaceAll(text, "not found in type "+t.String(), "is not known; allowed: "+strings.Join(names, ", "))
	}
	for name, words := range map[string]string{
		"map[string][]string": "an object of lists, such as {postgres: [vector]}", "[]string": "a list, such as [postgres, redis]",
		"string": "a word", "[]main.seedProject": "a list of projects", "[]main.seedAgent": "a list of agents",
		"main.seedProject": "a project", "main.seedAgent": "an agent", "main.seed": "an object with projects and agents",
	} {
		text = regexp.MustCompile(`cannot unmarshal !!\w+( `+"`[^`]*`"+`)? into `+regexp.QuoteMeta(name)+`( |$)`).ReplaceAllString(text, "must be "+words+", not$1$2")
	}
	return text
}

// devTokens are what dev hands to whoever started it.
type devTokens struct {
	URL           string
	Operator      string
	Choreographer string
	Agents        map[string]string // by slug
}

// newToken is a bearer token that nobody can guess.
func newToken() string { return rand.Text() + rand.Text() }

// store writes the seed, and makes a token for each agent and one for a choreographer.
func (s seed) store(ctx context.Context, store state.Store) (devTokens, error) {
	for _, p := range s.Projects {
		_, _, err := store.PutProject(ctx, state.Project{Slug: p.Slug, Name: p.Name, Services: p.Services, Extensions: p.Extensions})
		if err != nil {
			return devTokens{}, fmt.Errorf("project %s: %w", p.Slug, err)
		}
	}
	tokens := devTokens{Choreographer: newToken(), Agents: map[string]string{}}
	add := func(slug, role, token string) error {
		sum := sha256.Sum256([]byte(token))
		if _, err := store.CreateAgent(ctx, slug, role, sum[:]); err != nil {
			return fmt.Errorf("agent %s: %w", slug, err)
		}
		return nil
	}
	for _, a := range s.Agents {
		tokens.Agents[a.Slug] = newToken()
		if err := add(a.Slug, a.Role, tokens.Agents[a.Slug]); err != nil {
			return devTokens{}, err
		}
	}
	return tokens, add(choreographer, verbs.RoleChoreographer, tokens.Choreographer)
}

// startWork publishes that the agents which have a project work on it.
func (s seed) startWork(ctx context.Context, c *client.Client) error {
	for _, a := range s.Agents {
		if a.Project == "" {
			continue
		}
		data, err := json.Marshal(map[string]string{"task_id": a.Task, "project": a.Project, "status": "in_progress"})
		if err != nil {
			return fmt.Errorf("write work.started: %w", err)
		}
		_, err = c.PublishEvent(ctx, client.Event{
			ID: uuid.NewString(), Type: "work.started", Source: "sandboxd-dev", Subject: a.Slug, Data: data,
		})
		if err != nil {
			return fmt.Errorf("publish that %s works on %s: %w", a.Slug, a.Project, err)
		}
	}
	return nil
}
