package events

// Stated gives the words of a terminal state that scripts write without any: stale, late, exhausted. It is nil for the
// others.
func Stated(s State) *Refusal {
	switch s {
	case StateStale:
		return &Refusal{
			Guard:     2,
			Message:   "the work ended after this request was made, and its sandbox with it",
			Remediate: "call give_me_work for new work, then request_sandbox again",
		}
	case StateLate:
		return &Refusal{
			Guard:        7,
			Message:      "no worker took the request in time",
			Remediate:    "nothing was made; retry in a few seconds, and tell an operator when it happens again: a worker may be down",
			Retryable:    true,
			RetryAfterMS: 2000,
		}
	case StateExhausted:
		return &Refusal{
			Guard:        8,
			Message:      "provisioning was tried too often and never came to an end",
			Remediate:    "retry once in half a minute; when it happens again tell an operator: the request is kept among the dead letters",
			Retryable:    true,
			RetryAfterMS: 30000,
		}
	default:
		return nil
	}
}
