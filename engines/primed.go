package engines

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Primed is for an engine whose first start is slow: an image derived from the engine's own, in which that start has been
// made already. A container of it lays what was made into its memory and goes on from there. It only describes: whoever
// runs containers derives the image, and uses the plain one until then and wherever that fails.
type Primed struct {
	// Files are the context of the build, by their names: all in one folder. "Dockerfile" has one stage, which begins with the
	// argument BASE, the image to derive from.
	Files map[string]string
	// Describe says what the container for this order is to be, of the derived image that the order names.
	Describe func(Order) Spec
}

// Labels of derived images, and the name of which they are the tags. What lacks LabelDerivation is never removed.
const (
	PrimedName        = "roboco-sandbox-primed"
	LabelPrimed       = "roboco.sandbox.primed"        // the ID of the image that it was derived from
	LabelPrimedRecipe = "roboco.sandbox.primed.recipe" // of Primed.Recipe
	LabelPrimedBase   = "roboco.sandbox.primed.base"   // the name that the base had
	LabelDerivation   = "roboco.sandbox.derivation"    // a word of one build alone, on every step's image and container
)

// LabelImage names the engine's own image on a container of a derived one: a runtime reports it as Container.Image.
const LabelImage = "roboco.sandbox.image"

// Image is what a runtime reports of one image.
type Image struct {
	ID      string // "sha256:" and 64 hex characters
	Tags    []string
	Labels  map[string]string
	Created time.Time
}

// Derivation is an image to be built on another one that is there.
type Derivation struct {
	// Base is the ID of the image to begin with.
	Base string
	// Tag is the name of the result, which carries these labels.
	Tag    string
	Labels map[string]string
	// Files are the context, as in Primed.
	Files map[string]string
}

// Marked is the Dockerfile with LabelDerivation as its first step, so that every image and container of the build carries
// it: by it the remains of a build that fails are found. images/build.sh does the same.
func (d Derivation) Marked(word string) string {
	var out strings.Builder
	marked := false
	for line := range strings.Lines(d.Files["Dockerfile"]) {
		out.WriteString(line)
		if !marked && strings.HasPrefix(line, "FROM ") {
			out.WriteString("LABEL " + LabelDerivation + "=" + word + "\n")
			marked = true
		}
	}
	return out.String()
}

// Recipe is a hash of the files, 16 hex characters; images/build.sh computes the same.
func (p *Primed) Recipe() string {
	all := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(p.Files)) {
		fmt.Fprintf(all, "%x  %s\n", sha256.Sum256([]byte(p.Files[name])), name)
	}
	return fmt.Sprintf("%x", all.Sum(nil))[:16]
}

// Derivation is the primed image of this engine on a base with this name and ID. Another content behind the name leads to
// another image, and so does another recipe. The engine must have Primed.
func (e Engine) Derivation(base, id string) Derivation {
	recipe := e.Primed.Recipe()
	digest := strings.TrimPrefix(id, "sha256:")
	return Derivation{
		Base:   id,
		Tag:    fmt.Sprintf("%s:%s-%.12s-%.8s", PrimedName, e.Short, digest, recipe),
		Labels: map[string]string{LabelPrimed: id, LabelPrimedRecipe: recipe, LabelPrimedBase: base},
		Files:  e.Primed.Files,
	}
}
