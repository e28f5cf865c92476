package verbs_test

import (
	"net/http"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/client"
)

// letterID is a dead letter's that no scene has unless it keeps one.
const letterID = "7-1"

// keepLetter puts a dead letter of these fields there, as a worker would.
func (s *scene) keepLetter(id string, was ...string) {
	s.Helper()
	cell, _, _ := strings.Cut(s.bus.ReplyStream(dev, "x"), ":")
	rdb := redis.NewClient(&redis.Options{Addr: s.addr})
	defer func() { _ = rdb.Close() }()
	values := []any{"entry", "5-0", "cause", "undecodable", "reason", "a test"}
	for i := 0; i < len(was); i += 2 {
		values = append(values, "was:"+was[i], was[i+1])
	}
	require.NoError(s, rdb.XAdd(s.Context(), &redis.XAddArgs{Stream: cell + ":dead", ID: id, Values: values}).Err())
}

func deadTests() []test {
	return []test{
		{"dead letters: listed, shown, put back, dropped", func(s *scene) {
			c := s.as(ops)
			page, err := c.DeadLetters(s.Context(), "", 0)
			require.NoError(s, err)
			require.Equal(s, client.DeadLetterPage{Letters: []client.DeadLetter{}}, *page)
			s.keepLetter("7-1", "nonsense", "1")
			s.keepLetter("7-2", "v", "1", "id", "e", "type", "work.ended", "subject", dev, "source", "x", "data", "{}", "ends", "1", "retried", "2")
			s.keepLetter("7-3", "v", "1", "id", "r", "type", "sandbox.requested", "subject", dev, "data", `{"request_id":"r"}`)

			page, err = c.DeadLetters(s.Context(), "", 2)
			require.NoError(s, err)
			require.Len(s, page.Letters, 2)
			require.Equal(s, "7-3", page.Letters[0].ID)
			end := page.Letters[1]
			require.Equal(s, "work.ended", end.Type)
			require.Equal(s, dev, end.Agent)
			require.Equal(s, "e", end.EventID)
			require.Equal(s, "undecodable", end.Cause)
			require.Equal(s, "a test", end.Reason)
			require.Equal(s, 2, end.Retried)
			require.Nil(s, end.Fields)
			page, err = c.DeadLetters(s.Context(), page.NextBefore, 2)
			require.NoError(s, err)
			require.Empty(s, page.NextBefore)
			require.Len(s, page.Letters, 1)
			require.NotEmpty(s, page.Letters[0].Problem)

			one, err := c.DeadLetter(s.Context(), "7-2")
			require.NoError(s, err)
			require.Equal(s, "{}", one.Fields["data"])
			_, err = c.RetryDeadLetter(s.Context(), "7-1")
			require.ErrorContains(s, err, "cannot be decoded")
			require.True(s, client.IsStatus(err, http.StatusConflict))
			s.refused(s.call(ops, "POST", "/api/v1/dead/7-3/retry", ""), http.StatusConflict, client.CodeConflict)
			back, err := c.RetryDeadLetter(s.Context(), "7-2")
			require.NoError(s, err)
			require.NotEmpty(s, back.StreamID)
			require.NoError(s, c.DropDeadLetter(s.Context(), "7-1"))
			page, err = c.DeadLetters(s.Context(), "", 0)
			require.NoError(s, err)
			require.Len(s, page.Letters, 1)
		}},
		{"dead letters: what is not there, and bad queries", func(s *scene) {
			for _, x := range [][2]string{{"GET", ""}, {"DELETE", ""}, {"POST", "/retry"}} {
				for _, id := range []string{letterID, "nonsense", "+"} {
					s.refused(s.call(ops, x[0], "/api/v1/dead/"+id+x[1], ""), http.StatusNotFound, client.CodeNotFound)
				}
			}
			for _, query := range []string{"limit=0", "limit=501", "limit=x", "before=x", "agent=x"} {
				s.refused(s.call(ops, "GET", "/api/v1/dead?"+query, ""), http.StatusUnprocessableEntity, client.CodeInvalidInput)
			}
		}},
		{"dead letters: counted", func(s *scene) {
			s.keepLetter(letterID, "nonsense", "1")
			text := s.call("", "GET", "/metrics", "").body
			require.Contains(s, text, "sandboxd_dead_letters 1\n")
			require.Contains(s, text, `sandboxd_dead_letters_total{cause="panicked"} 0`)
		}},
	}
}
