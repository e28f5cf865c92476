package workertest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/roboco/sandboxd/engines"
)

// ImageID gives every image a digest of its name; Retag gives it another.
func (s *Sim) ImageID(ctx context.Context, image string) (string, error) {
	return do(ctx, s, OpOther, func() (string, error) { return s.imageID(image), nil })
}

// imageID is ImageID with s.mu held.
func (s *Sim) imageID(image string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", image, s.tags[image]))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Retag lets another content stand behind an image's name from now on.
func (s *Sim) Retag(image string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tags[image]++
}

// SetUnderivable makes every derivation fail, as of an image without a shell, or ends that.
func (s *Sim) SetUnderivable(yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.underivable = yes
}

// Derived lists the tags of the images that were derived, the truth, without faults.
func (s *Sim) Derived() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var tags []string
	for _, i := range s.derived {
		tags = append(tags, i.Tags...)
	}
	return tags
}

// From is the image that a container was made from, or "".
func (s *Sim) From(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.boxes[s.names[name]]; b != nil {
		return b.from
	}
	return ""
}

// Derive notes an image, which is then there to make containers of. The tag leaves an image that bore it.
func (s *Sim) Derive(ctx context.Context, d engines.Derivation) error {
	_, err := do(ctx, s, OpDerive, func() (struct{}, error) {
		if s.faults.underivable {
			return struct{}{}, errors.New("simulated: no shell in the image")
		}
		for i := range s.derived {
			s.derived[i].Tags = slices.DeleteFunc(s.derived[i].Tags, func(t string) bool { return t == d.Tag })
		}
		s.derived = append(s.derived, engines.Image{
			ID: "sha256:" + s.newID(), Tags: []string{d.Tag}, Labels: maps.Clone(d.Labels), Created: time.Now(),
		})
		return struct{}{}, nil
	})
	return err
}

// DerivedImages lists what was derived, oldest first.
func (s *Sim) DerivedImages(ctx context.Context) ([]engines.Image, error) {
	return do(ctx, s, OpOther, func() ([]engines.Image, error) {
		all := slices.Clone(s.derived)
		for i := range all {
			all[i].Tags, all[i].Labels = slices.Clone(all[i].Tags), maps.Clone(all[i].Labels)
		}
		return all, nil
	})
}

// RemoveDerived removes an image that no container uses.
func (s *Sim) RemoveDerived(ctx context.Context, id string) error {
	_, err := do(ctx, s, OpOther, func() (struct{}, error) {
		i := slices.IndexFunc(s.derived, func(x engines.Image) bool { return x.ID == id })
		if i < 0 {
			return struct{}{}, nil
		}
		for _, b := range s.boxes {
			if slices.Contains(s.derived[i].Tags, b.from) {
				return struct{}{}, fmt.Errorf("remove image %s: %w", id, engines.ErrInUse)
			}
		}
		s.derived = slices.Delete(s.derived, i, i+1)
		return struct{}{}, nil
	})
	return err
}

// hasDerived is false for the name of an image that should have been derived and was not, or is gone. s.mu is held.
func (s *Sim) hasDerived(image string) bool {
	return !strings.HasPrefix(image, engines.PrimedName+":") ||
		slices.ContainsFunc(s.derived, func(i engines.Image) bool { return slices.Contains(i.Tags, image) })
}
