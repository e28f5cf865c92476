package verbs

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/events"
)

// deadRoutes are what operators call about entries that could not be worked on.
func (g *Gateway) deadRoutes() []route {
	operator := []string{RoleOperator}
	return []route{
		{
			method: http.MethodGet, path: "/api/v1/dead", name: "list_dead_letters", handle: g.listLetters, roles: operator,
			summary: "Dead letters, newest first: entries that could not be worked on, each with its reason", out: typeOf[client.DeadLetterPage](),
			query: []param{
				{"before", "query", "string", "the next_before of the page before"},
				{"limit", "query", "integer", "1 to 500; 50"},
			},
			failures: []int{http.StatusUnprocessableEntity},
		},
		{
			method: http.MethodGet, path: "/api/v1/dead/{id}", name: "get_dead_letter", handle: g.getLetter, roles: operator,
			summary: "One dead letter, with the entry as it stood", out: typeOf[client.DeadLetter](), failures: []int{http.StatusNotFound},
		},
		{
			method: http.MethodPost, path: "/api/v1/dead/{id}/retry", name: "retry_dead_letter", handle: g.retryLetter, roles: operator,
			summary: "Put a dead letter back to be worked on, under a fresh time; 409 with the reason where that would serve nobody or undo what came later",
			out:     typeOf[client.RetriedLetter](),
			failures: []int{
				http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge,
			},
		},
		{
			method: http.MethodDelete, path: "/api/v1/dead/{id}", name: "drop_dead_letter", handle: g.dropLetter, roles: operator,
			summary: "Remove a dead letter for good", status: http.StatusNoContent, failures: []int{http.StatusNotFound},
		},
	}
}

// listLetters answers GET /api/v1/dead.
func (g *Gateway) listLetters(w http.ResponseWriter, r *http.Request, _ *call) error {
	q := r.URL.Query()
	if err := onlyParams(q, "before", "limit"); err != nil {
		return err
	}
	limit := defaultRows
	if s := q.Get("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > mostRows {
			return &client.InputError{Field: "limit", Problem: fmt.Sprintf("it must be a number from 1 to %d", mostRows)}
		}
		limit = n
	}
	letters, next, err := g.cfg.Bus.DeadLetters(r.Context(), q.Get("before"), limit)
	if err != nil {
		return fmt.Errorf("list the dead letters: %w", err)
	}
	page := client.DeadLetterPage{Letters: make([]client.DeadLetter, len(letters)), NextBefore: next}
	for i, l := range letters {
		page.Letters[i] = wireLetter(l)
		page.Letters[i].Fields = nil // of one that is shown alone
	}
	writeJSON(w, http.StatusOK, page)
	return nil
}

// getLetter answers GET /api/v1/dead/{id}.
func (g *Gateway) getLetter(w http.ResponseWriter, r *http.Request, _ *call) error {
	l, err := g.cfg.Bus.Letter(r.Context(), r.PathValue("id"))
	if err != nil {
		return letterProblem(r, err)
	}
	writeJSON(w, http.StatusOK, wireLetter(l))
	return nil
}

// retryLetter answers POST /api/v1/dead/{id}/retry.
func (g *Gateway) retryLetter(w http.ResponseWriter, r *http.Request, c *call) error {
	if _, err := fields(r); err != nil {
		return err
	}
	id := r.PathValue("id")
	streamID, err := g.cfg.Bus.RetryLetter(r.Context(), id)
	if err != nil {
		return letterProblem(r, err)
	}
	g.cfg.Log.Info().Str("letter", id).Str("entry", streamID).Str("by", c.who.slug).Msg("a dead letter was put back")
	writeJSON(w, http.StatusOK, client.RetriedLetter{ID: id, StreamID: streamID})
	return nil
}

// dropLetter answers DELETE /api/v1/dead/{id}.
func (g *Gateway) dropLetter(w http.ResponseWriter, r *http.Request, c *call) error {
	id := r.PathValue("id")
	if err := g.cfg.Bus.DropLetter(r.Context(), id); err != nil {
		return letterProblem(r, err)
	}
	g.cfg.Log.Info().Str("letter", id).Str("by", c.who.slug).Msg("a dead letter was dropped")
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func letterProblem(r *http.Request, err error) error {
	var refused *events.RetryError
	switch {
	case errors.Is(err, events.ErrNoLetter):
		return notFound("the dead letter "+clip(r.PathValue("id")), "GET /api/v1/dead lists those there are.")
	case errors.As(err, &refused):
		return &problem{
			status: http.StatusConflict, code: client.CodeConflict, message: "not put back: " + refused.Problem,
			remediate: "Nothing was changed. Drop the letter when it has been dealt with.",
		}
	}
	return fmt.Errorf("dead letter: %w", err)
}

func wireLetter(l events.Letter) client.DeadLetter {
	out := client.DeadLetter{
		ID: l.ID, KeptAt: l.At.UTC(), Entry: l.Entry, PublishedAt: streamTime(l.Entry), Cause: string(l.Cause), Reason: l.Reason,
		Retried: l.Retried, Problem: l.Problem, Fields: l.Fields,
	}
	if l.Event != nil {
		out.EventID, out.Type, out.Agent, out.Source = l.Event.ID, string(l.Event.Type), l.Event.Subject, l.Event.Source
	}
	return out
}
