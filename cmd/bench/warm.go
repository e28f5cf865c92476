package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// labelImage is on a container of a primed image, and names the image that it was made of.
const labelImage = "roboco.sandbox.image"

// primable names the engine whose first start is slow enough that it is made beforehand.
const primable = "postgres"

// errPlain: a container was not started from a primed image.
var errPlain = errors.New("it was started plainly, not primed")

// warm waits until the place starts from primed images. They are derived in the background; until they are there, it starts
// plainly.
func (p *place) warm(ctx context.Context) error {
	c, err := p.caller(ctx, "warm")
	if err != nil {
		return err
	}
	for _, s := range sets() {
		if !slices.Equal(s.engines, []string{primable}) {
			continue
		}
		err := await(ctx, 5*time.Minute, "a primed "+s.title(), func() (bool, error) {
			if err := c.begin(ctx, s); err != nil {
				return false, err
			}
			if _, err := c.request(ctx, ""); err != nil {
				return false, err
			}
			proof := c.provePrimed(ctx)
			_, err := c.release(ctx)
			if errors.Is(proof, errPlain) {
				return false, err
			}
			return true, errors.Join(proof, err)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// stock waits until the pool holds every set ready, so that its first filling is nobody's noise. A pool follows what is asked
// for: each set is asked for once, that none counts for nothing when another one has been measured.
func (p *place) stock(ctx context.Context) error {
	c, err := p.caller(ctx, "stock")
	if err != nil {
		return err
	}
	for _, s := range sets() {
		if err := c.begin(ctx, s); err != nil {
			return err
		}
		if _, err := c.request(ctx, ""); err != nil {
			return err
		}
		if _, err := c.release(ctx); err != nil {
			return err
		}
	}
	for _, s := range sets() {
		if err := p.full(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// provePrimed fails with errPlain unless the agent's container of the engine that can be primed was: what is measured must be
// what is said.
func (c *caller) provePrimed(ctx context.Context) error {
	named, err := c.runtime.ListNamed(ctx, "roboco-sandbox-")
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	for _, n := range named {
		if strings.HasSuffix(n.Name, "-"+c.slug) && n.Labels["roboco.sandbox.engine"] == primable && n.Labels[labelImage] == "" {
			return fmt.Errorf("%s: %w", n.Name, errPlain)
		}
	}
	return nil
}
