package events_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/events"
)

func TestDecode(t *testing.T) {
	t.Parallel()
	e, err := events.Decode([]byte(`{"id":"1","type":"sandbox.requested","source":"here","subject":"a-1","time":"2026-01-02T03:04:05Z",
		"traceparent":"00-1-2-01","extra":{},"data":{"request_id":"r","services":["redis"],"deadline":"x"}}`))
	require.NoError(t, err)
	require.Equal(t, events.SandboxRequested, e.Type)
	require.Equal(t, "1.0", e.SpecVersion)
	require.Equal(t, 2026, e.Time.Year())
	require.Equal(t, "00-1-2-01", e.TraceParent)

	for raw, want := range map[string]string{
		`{`:                        "event",
		`[]`:                       "event",
		`{"id":5}`:                 "id",
		`{"id":"1","subject":"a"}`: "type",
		`{"id":"1","subject":"a","type":"x","data":5}`:                                                    "type",
		`{"id":"1","subject":"a","type":"work.ended","data":5}`:                                           "data",
		`{"id":"1","subject":"a","type":"work.ended","data":{"task_id":5}}`:                               "data.task_id",
		`{"id":"1","subject":"a","type":"work.ended","specversion":"0.3"}`:                                "specversion",
		`{"id":"1","subject":"a","type":"work.ended","time":"today"}`:                                     "time",
		`{"id":"1","subject":"A","type":"work.ended"}`:                                                    "subject",
		`{"id":"1","subject":"a}:b","type":"work.ended"}`:                                                 "subject",
		`{"subject":"a","type":"work.ended"}`:                                                             "id",
		`{"id":"1","subject":"a","type":"work.started","data":{"project":"p"}}`:                           "data.task_id",
		`{"id":"1","subject":"a","type":"work.started","data":{"task_id":"t"}}`:                           "data.project",
		`{"id":"1","subject":"a","type":"work.started","data":{"task_id":"t","project":"p","owner":"x"}}`: "data.owner",
		`{"id":"1","subject":"a","type":"sandbox.requested"}`:                                             "data.request_id",
		`{"id":"1","subject":"a","type":"sandbox.requested","data":{"request_id":"r","services":"all"}}`:  "data.services",
		`{"id":"1","subject":"a","type":"sandbox.requested","data":{"request_id":"r","services":[]}}`:     "data.services",
		`{"id":"1","subject":"a","type":"logs.requested","data":{"request_id":"a b"}}`:                    "data.request_id",
		`{"id":"1","subject":"a","type":"logs.requested","data":{"request_id":"a","gateway":"{x}"}}`:      "data.gateway",
	} {
		_, err := events.Decode([]byte(raw))
		var wrong *events.DecodeError
		require.True(t, errors.As(err, &wrong), raw)
		require.Equal(t, want, wrong.Attribute, raw)
		require.NotEmpty(t, wrong.Problem)
		if want == "type" {
			require.Len(t, wrong.Allowed, 5)
		}
	}
	for _, raw := range []string{
		`{"id":"1","subject":"a","type":"work.ended"}`,
		`{"id":"1","subject":"a","type":"agent.stopped","data":null}`,
		`{"id":"1","subject":"a","type":"work.ended","data":{"verb":"i_am_done","task_id":null}}`,
		`{"id":"1","subject":"a","type":"sandbox.requested","data":{"request_id":"r","services":null}}`,
	} {
		_, err := events.Decode([]byte(raw))
		require.NoError(t, err, raw)
	}
}

func TestStated(t *testing.T) {
	t.Parallel()
	for _, s := range []events.State{events.StateStale, events.StateLate, events.StateExhausted} {
		r := events.Stated(s)
		require.NotEmpty(t, r.Message)
		require.NotEmpty(t, r.Remediate)
	}
	require.Nil(t, events.Stated(events.StateOK))
	require.False(t, events.Stated(events.StateStale).Retryable)
	require.True(t, events.Stated(events.StateLate).Retryable)
}
