package simwire

import (
	"context"
	"errors"
	"time"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/worker/workertest"
)

// call is a method's arguments; each method uses those that it needs.
type call struct {
	ID     string            `json:"id,omitempty"`
	Name   string            `json:"name,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	Lines  int               `json:"lines,omitempty"`
	Grace  time.Duration     `json:"grace,omitempty"`
	Launch *engines.Launch   `json:"launch,omitempty"`
	Query  *workertest.Query `json:"query,omitempty"`

	Derivation *engines.Derivation `json:"derivation,omitempty"`
}

// frame is one part of an answer: something on the way, or the last one with the result.
type frame struct {
	Connected bool                  `json:"connected,omitempty"`
	Event     *engines.Event        `json:"event,omitempty"`
	Progress  *engines.PullProgress `json:"progress,omitempty"`

	Last       bool                `json:"last,omitempty"`
	Text       string              `json:"text,omitempty"`
	Code       int                 `json:"code,omitempty"`
	Container  *engines.Container  `json:"container,omitempty"`
	Containers []engines.Container `json:"containers,omitempty"`
	Capacity   *engines.Capacity   `json:"capacity,omitempty"`
	Images     []engines.Image     `json:"images,omitempty"`
	Failure    *failure            `json:"failure,omitempty"`
}

// kinds are the errors that callers tell apart, by their names on the wire.
func kinds() map[string]error {
	return map[string]error{
		"not found": engines.ErrNotFound, "name taken": engines.ErrNameTaken, "unavailable": engines.ErrUnavailable,
		"foreign": engines.ErrForeign, "in use": engines.ErrInUse, "canceled": context.Canceled, "deadline": context.DeadlineExceeded,
	}
}

// failure is an error on the wire: its text, and what errors.Is and errors.As are to find in it.
type failure struct {
	Text  string   `json:"text"`
	Kinds []string `json:"kinds,omitempty"`
	Pull  *pull    `json:"pull,omitempty"`
}

// pull is an *engines.PullError on the wire.
type pull struct {
	Image     string   `json:"image"`
	Retryable bool     `json:"retryable"`
	Cause     *failure `json:"cause,omitempty"`
}

func toFailure(err error) *failure {
	if err == nil {
		return nil
	}
	f := &failure{Text: err.Error()}
	for name, kind := range kinds() {
		if errors.Is(err, kind) {
			f.Kinds = append(f.Kinds, name)
		}
	}
	var p *engines.PullError
	if errors.As(err, &p) {
		f.Pull = &pull{Image: p.Image, Retryable: p.Retryable, Cause: toFailure(p.Cause)}
	}
	return f
}

// err is the error again.
func (f *failure) err() error {
	if f == nil {
		return nil
	}
	e := &farError{text: f.Text}
	for _, name := range f.Kinds {
		e.within = append(e.within, kinds()[name])
	}
	if f.Pull != nil {
		e.within = append(e.within, &engines.PullError{Image: f.Pull.Image, Retryable: f.Pull.Retryable, Cause: f.Pull.Cause.err()})
	}
	return e
}

// farError is an error that arose on the other side.
type farError struct {
	text   string
	within []error
}

// Error is the text as it was.
func (e *farError) Error() string { return e.text }

// Unwrap gives what the error was made of, as far as callers tell it apart.
func (e *farError) Unwrap() []error { return e.within }
