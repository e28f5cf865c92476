package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// labelImage is on a container of a primed image, and names the image that it was made of.
const labelImage = "roboco.sandbox.image"

// warm waits until the primed images are there, which sandboxd derives in the background: until then it starts plainly.
func (p *place) warm(ctx context.Context) error {
	for _, s := range sets() {
		for _, engine := range s.engines {
			if len(s.engines) > 1 || !primable(engine) {
				continue
			}
			err := await(ctx, 5*time.Minute, "a primed image for "+s.title(), func() (bool, error) { return p.hasPrimed(ctx, s, engine) })
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// primable names the engine whose first start is slow enough that it is made beforehand.
func primable(engine string) bool { return engine == "postgres" }

// hasPrimed looks for the image that is derived from what this set would be made of.
func (p *place) hasPrimed(ctx context.Context, s set, engine string) (bool, error) {
	base, err := image(s, engine)
	if err != nil {
		return false, err
	}
	id, err := command(ctx, "image", "inspect", "-f", "{{.Id}}", base)
	if err != nil {
		return false, err
	}
	tags, err := command(ctx, "image", "ls", "-q", "--filter", "label=roboco.sandbox.primed="+id, "--filter", "dangling=false")
	return tags != "", err
}

// provePrimed fails unless the agent's container of the engine was started primed: what is measured must be what is said.
func (c *caller) provePrimed(ctx context.Context, s set) error {
	named, err := c.runtime.ListNamed(ctx, "roboco-sandbox-")
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	for _, n := range named {
		if strings.HasSuffix(n.Name, "-"+c.slug) && primable(n.Labels["roboco.sandbox.engine"]) && n.Labels[labelImage] == "" {
			return fmt.Errorf("%s: %s was started plainly, not primed", s.title(), n.Name)
		}
	}
	return nil
}
