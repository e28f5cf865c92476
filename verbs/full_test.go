package verbs_test

import (
	"fmt"
	"net/http"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/client"
	"github.com/roboco/sandboxd/events"
)

func fullTests() []test {
	return []test{
		{"an agent that asks without end is refused, and nobody else is", func(s *scene) {
			s.engage(dev, task)
			s.engage(other, task)
			for range 64 { // no worker answers them
				s.async(dev, `{}`)
			}
			for _, header := range []string{"Prefer: respond-async", "Accept: */*"} {
				a := s.call(dev, "POST", requestPath, `{}`, header)
				s.refused(a, http.StatusOK, client.CodeInvalidState)
				require.True(s, a.env.Retryable)
				require.Positive(s, a.env.RetryAfterMS)
				require.Contains(s, a.env.Message, "64 requests of agent "+dev+" have no answer yet")
				require.Contains(s, a.env.Message, "ROBOCO_SANDBOX_AGENT_REQUESTS")
				require.Contains(s, a.env.Remediate, "request_sandbox() again")
			}
			s.async(other, `{}`)
			s.work()
			s.eventually("the stand-in catches up", func() bool {
				g, err := s.bus.Gauges(s.Context())
				return err == nil && g.StreamLength == 0
			})
			s.async(dev, `{}`)
		}},
		{"the place in the line is told as it is", func(s *scene) {
			s.worker.place = 7
			s.work()
			s.engage(dev, task)
			a := s.call(dev, "GET", s.async(dev, `{"services":["redis"]}`).Events, "")
			got, _ := parseEvents(a.body)
			require.GreaterOrEqual(s, len(got), 3, a.body)
			require.JSONEq(s, `{"stage":"queued","position":7}`, got[1].data)
			var words []string
			s.engage(other, task)
			_, err := s.as(other).RequestSandbox(s.Context(), client.SandboxRequest{}, func(p client.Progress) { words = append(words, p.Words()) })
			require.NoError(s, err)
			require.Contains(s, words, "queued, place 7 in the line")
		}},
		{"what a worker refuses for want of a place is to be tried again", func(s *scene) {
			s.worker.fail = &events.Refusal{
				Guard: 8, Message: "the place is full: 3 sandboxes live", Remediate: "Call request_sandbox() again in a few seconds.",
				Retryable: true, RetryAfterMS: 5000,
			}
			s.work()
			s.engage(dev, task)
			a := s.call(dev, "POST", requestPath, `{}`)
			s.refused(a, http.StatusOK, client.CodeInvalidState)
			require.Equal(s, "true 5000", fmt.Sprint(a.env.Retryable, a.env.RetryAfterMS))
		}},
	}
}
