package worker

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
	"github.com/roboco/sandboxd/state"
)

// classify turns the cause of a failure into guard 8: what went wrong, and whether trying again may help.
func classify(err error) *events.Refusal {
	r := &events.Refusal{Guard: 8, Message: err.Error(), Retryable: true, RetryAfterMS: 2000, Remediate: "Call request_sandbox() again in a moment."}
	if r.Message == "" {
		r.Message = fmt.Sprintf("%T", err)
	}
	var pull *engines.PullError
	var image *imageError
	var exit *engines.ExitError
	var stranger *strangerError
	var full *fullError
	var sealed *events.SealedError
	switch {
	case errors.As(err, &full):
		r.RetryAfterMS = 5000
		r.Remediate = "Call request_sandbox() again in a few seconds. " + full.remediate
	case errors.As(err, &sealed):
		r.Retryable, r.RetryAfterMS, r.Remediate = false, 0, sealed.Remediate()
	case errors.As(err, &stranger):
		r.Retryable, r.RetryAfterMS = false, 0
		r.Remediate = "An operator must rename or remove that container; sandboxd never touches what is not its own."
	case errors.As(err, &pull):
		r.Retryable = pull.Retryable
		if pull.Retryable {
			r.RetryAfterMS = 10_000
			r.Remediate = "Call request_sandbox() again in a moment."
		} else {
			r.RetryAfterMS = 0
			r.Remediate = "Trying again will not help by itself."
		}
		if errors.As(err, &image) {
			r.Remediate += " An operator can make " + image.image + " available to the container engine, or set " + image.setting() + " to another image."
		}
	case errors.As(err, &exit):
		if exit.OOMKilled {
			r.Remediate = "Call request_sandbox() again in a moment; if it ends so again, an operator should raise ROBOCO_SANDBOX_MEMORY."
			break
		}
		r.Retryable, r.RetryAfterMS = false, 0
		r.Remediate = "The container stopped by itself: an operator should look at the image and its settings; the message ends with its last log lines."
	case errors.Is(err, state.ErrUnavailable):
		r.Message = "Postgres (the state store) cannot be reached" // where it is and who asks is for the log
	case errors.Is(err, engines.ErrUnavailable):
		r.Message = "The container engine does not answer, so nothing is known of the sandbox"
	case errors.Is(err, errNotReady):
	case errors.Is(err, errUnsettled):
		r.Remediate += " If it stays so, a database that Redis has forgotten is there and does not answer its first password: " +
			"end the work, and it goes, or have an operator remove the sandbox (sandbox rm)."
	default:
		r.Retryable, r.RetryAfterMS = false, 0
		r.Remediate = "Trying again will not help by itself: an operator should look at the cause named in the message."
	}
	return r
}

func refuseRole(role string, roles []string) *events.Refusal {
	return &events.Refusal{
		Guard:     0,
		Message:   fmt.Sprintf("the role %q does not carry request_sandbox", role),
		Remediate: "Only these roles carry request_sandbox: " + list(roles) + ".",
	}
}

func refuseSwitch() *events.Refusal {
	return &events.Refusal{
		Guard:     1,
		Message:   "sandboxes are switched off",
		Remediate: "An operator must switch them on: ROBOCO_SANDBOX_DB_ENABLED=true, or the flag sandbox_db_enabled at run time.",
	}
}

func refuseEngagement(why string) *events.Refusal {
	return &events.Refusal{Guard: 2, Message: why, Remediate: "Call give_me_work first, then request_sandbox(). " +
		"Whoever hands out work tells sandboxd of it by the event work.started (sandbox work start)."}
}

func refuseProject(slug string, missing bool) *events.Refusal {
	why := fmt.Sprintf("project %q has not opted into any sandbox service", slug)
	if missing {
		why = fmt.Sprintf("project %q does not exist", slug)
	}
	return &events.Refusal{Guard: 3, Message: why, Remediate: "An operator must set the project's sandbox_services."}
}

func refuseServices(bad, opted []string) *events.Refusal {
	return &events.Refusal{
		Guard:     4,
		Message:   "not among the project's sandbox services: " + list(bad),
		Remediate: "Ask for a subset of: " + list(opted) + ".",
	}
}

func refuseExtensionService(bad, opted []string, allowed map[string][]string) *events.Refusal {
	parts := make([]string, 0, len(opted))
	for _, s := range opted {
		parts = append(parts, s+": "+list(allowed[s]))
	}
	return &events.Refusal{
		Guard:     5,
		Message:   "extensions for a service that is not among the project's sandbox services: " + list(bad),
		Remediate: "The services are " + list(opted) + "; their allowed extensions are " + strings.Join(parts, "; ") + ".",
	}
}

func refuseExtensions(bad, allowed map[string][]string) *events.Refusal {
	var what, instead []string
	for _, service := range slices.Sorted(maps.Keys(bad)) {
		what = append(what, service+": "+list(bad[service]))
		instead = append(instead, service+": "+list(allowed[service]))
	}
	return &events.Refusal{
		Guard:     6,
		Message:   "extensions that are not allowed for " + strings.Join(what, "; "),
		Remediate: "The allowed extensions are " + strings.Join(instead, "; ") + ".",
	}
}

// list is names, sorted, or a word for none.
func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(slices.Values(names)), ", ")
}
