package docker

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/docker/docker/client"
)

// defaultContext is the CLI's name for "no context": the engine's usual socket.
const defaultContext = "default"

// endpoint is where an engine listens. The TLS files are empty for a plain connection.
type endpoint struct {
	host          string
	ca, cert, key string
}

// endpoint resolves the address: the host, else the context that is named, else the CLI's current one, else the
// usual socket.
func (c Config) endpoint() (endpoint, error) {
	ep, err := c.resolve()
	if err != nil {
		return endpoint{}, err
	}
	switch scheme, _, _ := strings.Cut(ep.host, "://"); scheme {
	case "unix", "tcp", "http", "https":
		return ep, nil
	case "ssh":
		return endpoint{}, fmt.Errorf("container engine at %s: ssh is not supported; forward its socket and name that", ep.host)
	}
	return endpoint{}, fmt.Errorf("container engine at %s: the address must begin with unix:// or tcp://", ep.host)
}

func (c Config) resolve() (endpoint, error) {
	if c.Host != "" {
		ep := endpoint{host: c.Host}
		if c.CertPath != "" {
			ep.ca, ep.cert, ep.key = tlsFiles(c.CertPath)
		}
		return ep, nil
	}
	name := c.Context
	if name == "" && c.ConfigDir != "" {
		current, err := currentContext(c.ConfigDir)
		if err != nil {
			return endpoint{}, err
		}
		name = current
	}
	if name == "" || name == defaultContext {
		return endpoint{host: client.DefaultDockerHost}, nil
	}
	if c.ConfigDir == "" {
		return endpoint{}, fmt.Errorf("docker context %q: no configuration directory to look it up in", name)
	}
	return readContext(c.ConfigDir, name)
}

// currentContext is the context that `docker context use` left, empty where there is none.
func currentContext(dir string) (string, error) {
	path := filepath.Join(dir, "config.json")
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the docker configuration: %w", err)
	}
	var cfg struct {
		CurrentContext string `json:"currentContext"`
	}
	if err := json.Unmarshal(raw, &cfg); err != nil {
		return "", fmt.Errorf("read the docker configuration %s: %w", path, err)
	}
	return cfg.CurrentContext, nil
}

// readContext reads a context from the CLI's store, where it lies under the hash of its name.
func readContext(dir, name string) (endpoint, error) {
	sum := sha256.Sum256([]byte(name))
	id := hex.EncodeToString(sum[:])
	path := filepath.Join(dir, "contexts", "meta", id, "meta.json")
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return endpoint{}, fmt.Errorf("docker context %q: there is none of that name in %s (docker context ls lists them; DOCKER_CONTEXT or docker context use names one): %w", name, dir, err)
	}
	if err != nil {
		return endpoint{}, fmt.Errorf("docker context %q: %w", name, err)
	}
	var meta struct {
		Endpoints map[string]struct{ Host string }
	}
	if err := json.Unmarshal(raw, &meta); err != nil {
		return endpoint{}, fmt.Errorf("docker context %q: read %s: %w", name, path, err)
	}
	ep := endpoint{host: meta.Endpoints["docker"].Host}
	if ep.host == "" {
		return endpoint{}, fmt.Errorf("docker context %q has no docker endpoint (%s)", name, path)
	}
	tls := filepath.Join(dir, "contexts", "tls", id, "docker")
	if _, err := os.Stat(tls); err == nil {
		ep.ca, ep.cert, ep.key = tlsFiles(tls)
	}
	return ep, nil
}

// tlsFiles are the files of a directory that exist, under the CLI's names.
func tlsFiles(dir string) (ca, cert, key string) {
	find := func(name string) string {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err != nil {
			return ""
		}
		return path
	}
	return find("ca.pem"), find("cert.pem"), find("key.pem")
}
