package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/events/eventstest"
)

// authority issues certificates for this machine, into a folder of the test.
type authority struct {
	t      *testing.T
	folder string
	ca     string // file
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, folder: t.TempDir()}
	a.ca, _ = a.issue("ca")
	return a
}

// issue makes a certificate and its key; the first one is the authority's own.
func (a *authority) issue(name string) (certFile, keyFile string) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(a.t, err)
	c := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
		c.ExtKeyUsage, c.IPAddresses, c.DNSNames = nil, nil, nil
		a.cert, a.key, parent, signer = c, key, c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	require.NoError(a.t, err)
	raw, err := x509.MarshalECPrivateKey(key)
	require.NoError(a.t, err)
	write := func(file, kind string, b []byte) string {
		path := filepath.Join(a.folder, file)
		require.NoError(a.t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600))
		return path
	}
	return write(name+".pem", "CERTIFICATE", der), write(name+".key", "EC PRIVATE KEY", raw)
}

// serve runs a server in a container that reads its certificate from its environment, and gives its address.
func (a *authority) serve(image, port, script string, env ...string) string {
	a.t.Helper()
	needDocker(a.t)
	name := "sandboxd-tls-" + eventstest.Cell()
	cert, key := a.issue(name)
	args := []string{"run", "-d", "--name", name, "-p", "127.0.0.1::" + port, "-e", "CA", "-e", "CERT", "-e", "KEY"}
	for _, kv := range env {
		args = append(args, "-e", kv)
	}
	const files = `umask 077; for f in CA CERT KEY; do eval "printf %s \"\$$f\"" >/tmp/$f; done; `
	cmd := exec.CommandContext(a.t.Context(), "docker", append(args, "--entrypoint", "sh", image, "-euc", files+script)...)
	cmd.Env = append(os.Environ(), "CA="+a.read(a.ca), "CERT="+a.read(cert), "KEY="+a.read(key))
	out, err := cmd.CombinedOutput()
	require.NoError(a.t, err, "%s", out)
	a.t.Cleanup(func() { _ = exec.Command("docker", "rm", "-fv", name).Run() })
	return dockerLines(a.t, "port", name, port+"/tcp")[0]
}

func (a *authority) read(file string) string {
	a.t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(a.t, err)
	return string(b)
}

func (a *authority) redis() string {
	return a.serve(eventstest.Image, "6379", `exec redis-server --port 0 --tls-port 6379 --tls-ca-cert-file /tmp/CA --tls-cert-file /tmp/CERT `+
		`--tls-key-file /tmp/KEY --tls-auth-clients yes --save "" --maxmemory-policy noeviction`)
}

func (a *authority) postgres() string {
	return a.serve("postgres:16-alpine", "5432", `chown postgres /tmp/CERT /tmp/KEY; exec docker-entrypoint.sh postgres -c ssl=on `+
		`-c ssl_cert_file=/tmp/CERT -c ssl_key_file=/tmp/KEY`, "POSTGRES_PASSWORD=hunter2")
}

// sandboxd runs one command until it ends; a start waits for its stores for as long as given.
func sandboxd(ctx context.Context, env []string, patience time.Duration, args ...string) (int, string) {
	var out buffer
	code := run(ctx, program{environ: env, out: &out, err: &out, home: os.UserHomeDir, patience: patience}, args)
	return code, out.String()
}

// Everything on the wire is encrypted and verified: Redis, Postgres, the gateway.
func TestTLSEverywhere(t *testing.T) {
	t.Parallel()
	needDocker(t)
	a, stranger := newAuthority(t), newAuthority(t)
	redisAddr, postgresAddr := a.redis(), a.postgres()
	cert, key := a.issue("client")
	gatewayCert, gatewayKey := a.issue("gateway")
	database := "postgres://postgres:hunter2@" + postgresAddr + "/postgres?sslmode=verify-full&sslrootcert="
	env := []string{
		"ROBOCO_DATABASE_URL=" + database + a.ca, "ROBOCO_REDIS_URL=rediss://" + redisAddr + "/0", "ROBOCO_SANDBOX_LISTEN=127.0.0.1:0",
		"ROBOCO_REDIS_TLS_CA=" + a.ca, "ROBOCO_REDIS_TLS_CERT=" + cert, "ROBOCO_REDIS_TLS_KEY=" + key,
		"ROBOCO_SANDBOX_TLS_CERT=" + gatewayCert, "ROBOCO_SANDBOX_TLS_KEY=" + gatewayKey, "ROBOCO_SANDBOX_OPERATOR_TOKEN=op-token",
	}
	code, out := sandboxd(t.Context(), env, time.Minute, "migrate")
	require.Equal(t, exitOK, code, out)
	conn, err := pgx.Connect(t.Context(), database+a.ca)
	require.NoError(t, err)
	var encrypted bool
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").Scan(&encrypted))
	require.True(t, encrypted)
	require.NoError(t, conn.Close(t.Context()))

	t.Log("each server is refused where another authority is trusted, and Redis refuses who shows no certificate")
	other := func(name, value string) []string {
		return withDefaults(without(env, name), map[string]string{name: value})
	}
	for _, c := range []struct {
		env     []string
		command string
		says    []string
	}{
		{other("ROBOCO_DATABASE_URL", database+stranger.ca), "migrate", []string{"ROBOCO_DATABASE_URL", "certificate"}},
		{other("ROBOCO_REDIS_TLS_CA", stranger.ca), "gateway", []string{"ROBOCO_REDIS_URL", "certificate"}},
		{without(env, "ROBOCO_REDIS_TLS_CA"), "gateway", []string{"ROBOCO_REDIS_URL", "certificate"}},
		{without(without(env, "ROBOCO_REDIS_TLS_CERT"), "ROBOCO_REDIS_TLS_KEY"), "gateway", []string{"ROBOCO_REDIS_URL"}},
	} {
		code, out := sandboxd(t.Context(), c.env, 50*time.Millisecond, c.command)
		require.Equal(t, exitFailed, code, out)
		for _, words := range c.says {
			require.Contains(t, out, words)
		}
		require.NotContains(t, out, "hunter2")
	}

	url := "https://" + startGateway(t, env)
	cli := filepath.Join(t.TempDir(), "sandbox")
	built, err := exec.CommandContext(t.Context(), "go", "build", "-o", cli, "../sandbox").CombinedOutput()
	require.NoError(t, err, "%s", built)
	call := func(ca string, args ...string) (int, string) {
		cmd := exec.CommandContext(t.Context(), cli, args...)
		cmd.Env = []string{"ROBOCO_SANDBOX_URL=" + url, "ROBOCO_SANDBOX_TOKEN=op-token", "ROBOCO_SANDBOX_CA=" + ca}
		out, _ := cmd.CombinedOutput()
		return cmd.ProcessState.ExitCode(), string(out)
	}
	code, out = call(a.ca, "health")
	require.Equal(t, 0, code, out)
	code, out = call(a.ca, "projects", "--json")
	require.Equal(t, 0, code, out)
	for _, ca := range []string{"", stranger.ca} {
		code, out = call(ca, "health")
		require.Equal(t, 3, code, out)
		require.Contains(t, out, "certificate")
	}
	code, out = call(filepath.Join(a.folder, "nowhere"), "health")
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "ROBOCO_SANDBOX_CA")
	resp, err := http.Get("http" + strings.TrimPrefix(url, "https") + "/healthz")
	if err == nil {
		require.Equal(t, http.StatusBadRequest, resp.StatusCode, "no plain HTTP beside it")
		require.NoError(t, resp.Body.Close())
	}
}

// startGateway runs a gateway in this process until the test ends, and gives its address.
func startGateway(t *testing.T, env []string) string {
	t.Helper()
	var out buffer
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, program{environ: env, out: &out, err: &out, home: os.UserHomeDir, patience: never}, []string{"gateway"})
	}()
	t.Cleanup(func() {
		cancel()
		require.Equal(t, exitOK, <-code, "%s", &out)
	})
	var addr string
	require.Eventually(t, func() bool {
		for line := range bytes.Lines([]byte(out.String())) {
			var l struct{ Listen, Message string }
			if json.Unmarshal(line, &l) == nil && l.Message == "gateway started" {
				addr = l.Listen
			}
		}
		return addr != ""
	}, never, 20*time.Millisecond, "%s", &out)
	return addr
}

// without leaves one variable out.
func without(env []string, name string) (left []string) {
	for _, kv := range env {
		if !strings.HasPrefix(kv, name+"=") {
			left = append(left, kv)
		}
	}
	return left
}
