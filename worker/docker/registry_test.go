package docker_test

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	typeManifest = "application/vnd.docker.distribution.manifest.v2+json"
	typeConfig   = "application/vnd.docker.container.image.v1+json"
	typeLayer    = "application/vnd.docker.image.rootfs.diff.tar.gzip"
)

// registry serves one image, made of random bytes, over the registry protocol.
type registry struct {
	addr     string
	manifest []byte
	config   []byte
	layer    []byte
	layers   atomic.Int64 // how often the layer was asked for
	requests atomic.Int64 // all that was asked for
	// half, when set, is called when the layer is half sent.
	half func()
}

func digest(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

// newRegistry listens on loopback, where engines accept a registry without TLS. before may answer a request itself.
func newRegistry(t *testing.T, before func(http.ResponseWriter, *http.Request) bool) *registry {
	t.Helper()
	content := make([]byte, 4<<20)
	_, _ = rand.Read(content) // never fails
	root, err := tarball("bytes", content)
	require.NoError(t, err)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err = z.Write(root)
	require.NoError(t, err)
	require.NoError(t, z.Close())

	g := &registry{layer: packed.Bytes()}
	g.config = marshal(t, map[string]any{
		"architecture": "amd64", "os": "linux", "config": map[string]any{"Cmd": []string{"/bytes"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(root)}},
	})
	blob := func(kind string, b []byte) map[string]any {
		return map[string]any{"mediaType": kind, "size": len(b), "digest": digest(b)}
	}
	g.manifest = marshal(t, map[string]any{
		"schemaVersion": 2, "mediaType": typeManifest,
		"config": blob(typeConfig, g.config), "layers": []any{blob(typeLayer, g.layer)},
	})
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		g.requests.Add(1)
		if before == nil || !before(w, q) {
			g.serve(w, q)
		}
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // engines try TLS first
	s.Start()
	t.Cleanup(s.Close)
	g.addr = s.Listener.Addr().String()
	return g
}

// ref is an image there; the engine must not have it yet.
func (g *registry) ref(name string) string { return g.addr + "/" + run + "/" + name + ":1" }

func (g *registry) serve(w http.ResponseWriter, q *http.Request) {
	path := q.URL.Path
	switch {
	case path == "/v2/":
		w.WriteHeader(http.StatusOK)
	case strings.Contains(path, "/present/manifests/"):
		w.Header().Set("Docker-Content-Digest", digest(g.manifest))
		send(w, q, typeManifest, g.manifest)
	case strings.HasSuffix(path, "/blobs/"+digest(g.config)):
		send(w, q, "application/octet-stream", g.config)
	case strings.HasSuffix(path, "/blobs/"+digest(g.layer)):
		g.layers.Add(1)
		middle := len(g.layer) / 2
		w.Header().Set("Content-Length", fmt.Sprint(len(g.layer)))
		_, _ = w.Write(g.layer[:middle])
		_ = http.NewResponseController(w).Flush()
		if g.half != nil {
			g.half()
		}
		_, _ = w.Write(g.layer[middle:])
	default:
		refuse(w, http.StatusNotFound, "MANIFEST_UNKNOWN", "manifest unknown")
	}
}

func send(w http.ResponseWriter, q *http.Request, kind string, body []byte) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	if q.Method != http.MethodHead {
		_, _ = w.Write(body)
	}
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"errors":[{"code":%q,"message":%q}]}`, code, message)
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	require.NoError(t, err)
	return raw
}
