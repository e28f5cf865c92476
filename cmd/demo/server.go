package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/roboco/sandboxd/client"
)

const (
	startWithin = 60 * time.Second
	stopWithin  = 60 * time.Second
	lookEvery   = 20 * time.Millisecond
)

// server is a running `sandboxd dev` and what it gave us.
type server struct {
	url, agent string
	client     *client.Client // as the agent
	cell       string

	process *exec.Cmd
	exited  chan error
	said    *bytes.Buffer
	folder  string
	stopped bool
}

// start runs the program on a free port and waits until it is ready.
func start(ctx context.Context, program string) (*server, error) {
	folder, err := os.MkdirTemp("", "sandboxd-demo-*")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the tokens: %w", err)
	}
	s := &server{exited: make(chan error, 1), said: &bytes.Buffer{}, folder: folder}
	tokens := filepath.Join(folder, "tokens")
	// Its end is told by a signal, so that it cleans up even when the tour is interrupted.
	s.process = exec.CommandContext(context.WithoutCancel(ctx), program, "dev", "--token-file", tokens)
	s.process.Env = append(os.Environ(), "ROBOCO_SANDBOX_LISTEN=127.0.0.1:0")
	s.process.Stdout, s.process.Stderr = s.said, s.said
	s.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C reaches us alone
	if err := s.process.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	go func() { s.exited <- s.process.Wait() }()
	if err := s.await(ctx, tokens); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

// await waits for the tokens, which are written once the server is ready, and reads them.
func (s *server) await(ctx context.Context, path string) error {
	var text []byte
	err := eventually(ctx, startWithin, func() (bool, error) {
		select {
		case err := <-s.exited:
			s.exited <- err
			return false, fmt.Errorf("sandboxd dev ended: %w\n%s", err, s.said)
		default:
		}
		var err error
		text, err = os.ReadFile(path)
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for sandboxd dev: %w", err)
	}
	vars := map[string]string{}
	for l := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(strings.TrimPrefix(l, "export ")), "=")
		vars[name] = strings.Trim(value, "'")
	}
	s.url, s.agent = vars["ROBOCO_SANDBOX_URL"], vars["SANDBOXD_DEV_AGENT"]
	u, err := url.Parse(s.url)
	if err != nil {
		return fmt.Errorf("read the gateway's address: %w", err)
	}
	s.cell = "dev-" + u.Port()
	s.client, err = client.New(client.Config{URL: s.url, Token: vars["ROBOCO_SANDBOX_TOKEN"]})
	return err
}

// stop ends the server as an operator would, and waits for it. Calling it again does nothing.
func (s *server) stop() error {
	if s.stopped {
		return nil
	}
	s.stopped = true
	defer func() { _ = os.RemoveAll(s.folder) }()
	_ = s.process.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case err := <-s.exited:
		if err != nil {
			return fmt.Errorf("sandboxd dev: %w\n%s", err, s.said)
		}
		return nil
	case <-time.After(stopWithin):
		_ = s.process.Process.Kill()
		return errors.New("sandboxd dev did not stop")
	}
}

// containers are the names of what the server made and still has.
func (s *server) containers(ctx context.Context) ([]string, error) {
	names, err := docker(ctx, "ps", "--all", "--format", "{{.Names}}", "--filter", "label=roboco.sandbox.cell="+s.cell)
	slices.Sort(names)
	return names, err
}

// anonymousVolumes are those of the server's containers.
func (*server) anonymousVolumes(ctx context.Context, containers []string) ([]string, error) {
	if len(containers) == 0 {
		return nil, nil
	}
	return docker(ctx, append([]string{"inspect", "--format", `{{range .Mounts}}{{if eq .Type "volume"}}{{println .Name}}{{end}}{{end}}`}, containers...)...)
}

// expectNothing is nil when no container and no network of the server is left.
func (s *server) expectNothing(ctx context.Context) error {
	containers, err := s.containers(ctx)
	if err != nil {
		return err
	}
	networks, err := docker(ctx, "network", "ls", "--format", "{{.Name}}", "--filter", "name=sandboxd-"+s.cell)
	if err != nil {
		return err
	}
	if len(containers)+len(networks) > 0 {
		return fmt.Errorf("left behind: %v %v", containers, networks)
	}
	return nil
}

// docker runs the docker command and gives the lines it printed.
func docker(ctx context.Context, args ...string) ([]string, error) {
	out, err := exec.CommandContext(ctx, "docker", args...).Output()
	if err != nil {
		return nil, fmt.Errorf("docker %s: %w", args[0], err)
	}
	return strings.Fields(string(out)), nil
}

// eventually asks until the answer is yes, an error, or the time is over.
func eventually(ctx context.Context, within time.Duration, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(lookEvery):
		}
	}
}
