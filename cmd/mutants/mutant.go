package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gopkg.in/yaml.v3"
)

//go:embed mutants.yaml
var catalogue []byte

// change puts one text in another's place.
type change struct {
	File string `yaml:"file"` // empty in an also: the mutant's
	Old  string `yaml:"old"`  // stands in the file exactly once
	New  string `yaml:"new"`
}

// mutant is the protocol broken in one way.
type mutant struct {
	Name   string `yaml:"name"`
	change `yaml:",inline"`
	Also   []change `yaml:"also"` // further places that belong to it
	In     string   `yaml:"in"`   // the package whose tests must fail
	Run    string   `yaml:"run"`  // which of them; empty for all
	Full   bool     `yaml:"full"` // they need Docker
}

// mutants reads the catalogue.
func mutants() ([]mutant, error) {
	var all []mutant
	d := yaml.NewDecoder(bytes.NewReader(catalogue))
	d.KnownFields(true)
	if err := d.Decode(&all); err != nil {
		return nil, fmt.Errorf("read the catalogue of mutants: %w", err)
	}
	names := map[string]bool{}
	for _, m := range all {
		if m.Name == "" || m.In == "" || names[m.Name] {
			return nil, fmt.Errorf("mutant %q: a name of its own and a package are needed", m.Name)
		}
		names[m.Name] = true
	}
	return all, nil
}

// overlay writes the broken files to dir, and the list by which the compiler takes them in place of those under root.
// A text that does not stand there exactly once is an error: the mutant has to follow the code.
func (m mutant) overlay(root, dir string) (list string, err error) {
	texts := map[string]string{}
	for _, c := range append([]change{m.change}, m.Also...) {
		if c.File == "" {
			c.File = m.File
		}
		path := filepath.Join(root, c.File)
		text, ok := texts[path]
		if !ok {
			raw, err := os.ReadFile(path)
			if err != nil {
				return "", fmt.Errorf("mutant %q: %w", m.Name, err)
			}
			text = string(raw)
		}
		if n := strings.Count(text, c.Old); n != 1 || c.Old == "" {
			return "", fmt.Errorf("mutant %q: in %s the text to be changed stands %d times, not once: %s", m.Name, c.File, n, c.Old)
		}
		texts[path] = strings.Replace(text, c.Old, c.New, 1)
	}
	replace := map[string]string{}
	for path, text := range texts {
		broken := filepath.Join(dir, strings.ReplaceAll(strings.TrimPrefix(path, root), string(filepath.Separator), "_"))
		if err := os.WriteFile(broken, []byte(text), 0o600); err != nil {
			return "", fmt.Errorf("write a mutant: %w", err)
		}
		replace[path] = broken
	}
	raw, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", fmt.Errorf("write the overlay: %w", err)
	}
	list = filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, raw, 0o600); err != nil {
		return "", fmt.Errorf("write the overlay: %w", err)
	}
	return list, nil
}
