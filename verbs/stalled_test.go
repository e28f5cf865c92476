package verbs_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/events/eventstest"
)

// A body that is promised and never comes holds no connection for ever, whoever sends it and wherever it goes; a call that is
// whole is answered as ever.
func TestStalledBodies(t *testing.T) {
	t.Parallel()
	s := newScene(t, eventstest.StartEmbedded(t), 2*time.Second)
	s.work()
	cfg := s.config
	cfg.BodyWithin, cfg.GatewayName = 200*time.Millisecond, "gw-"+eventstest.Cell()
	url := s.serve(cfg)
	for _, call := range []string{"GET /healthz", "GET /readyz", "POST /api/v1/do/i_am_idle", "POST " + requestPath, "POST /mcp"} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		require.NoError(t, err)
		require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
		_, err = fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s-token\r\nContent-Length: 50\r\n\r\n", call, dev)
		require.NoError(t, err)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err, call)
		require.NotEqual(t, http.StatusInternalServerError, resp.StatusCode, call)
		require.NoError(t, resp.Body.Close())
		require.NoError(t, conn.Close())
	}
	s.engage(dev, task)
	s.url = url
	require.Len(t, s.call(dev, "POST", requestPath, "").env.Evidence, 3)
}
