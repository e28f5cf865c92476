package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/roboco/sandboxd/client"
)

// Exit codes.
const (
	exitOK          = 0
	exitRefused     = 1
	exitUsage       = 2
	exitUnreachable = 3
)

// app is one run of the program: where it reads and writes, and how it reaches the gateway.
type app struct {
	in       io.Reader
	out, err io.Writer
	terminal bool // err is a terminal: a progress line may be drawn over

	url, token string
	ca         string // file of the authority to trust beside the system's; empty for none
	json       bool
}

// failure is what went wrong while a command did its work, as against how it was called.
type failure struct{ cause error }

// Error is the cause's.
func (f *failure) Error() string { return f.cause.Error() }

// Unwrap gives the cause.
func (f *failure) Unwrap() error { return f.cause }

// run executes one command line and returns the exit code.
func (a *app) run(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	var refusal *client.Error
	var failed *failure
	switch {
	case errors.Is(err, errTold):
		return exitRefused
	case errors.As(err, &refusal):
		a.reportRefusal(refusal.Envelope, err)
		return exitRefused
	case errors.As(err, &failed):
		a.reportFailure(failed)
		return exitUnreachable
	default:
		a.complain("sandbox: %s\nsandbox: try '%s --help'\n", inWords(err), cmd.CommandPath())
		return exitUsage
	}
}

// errTold is an answer that is no, of which the command itself has told.
var errTold = errors.New("told already")

// complain writes for people, and has nobody to tell when that fails.
func (a *app) complain(format string, args ...any) { _, _ = fmt.Fprintf(a.err, format, args...) }

// reportRefusal tells why the gateway said no: its envelope as JSON, or its words.
func (a *app) reportRefusal(e client.Envelope, err error) {
	if a.json && e.Failed() && a.printJSON(e) == nil {
		return
	}
	a.complain("sandbox: refused: %v\n", err)
	if e.Retryable && e.Remediate == "" { // the remedy says so itself
		a.complain("sandbox: trying again may help\n")
	}
}

// note tells people, beside the answer, what may not be as they meant it.
func (a *app) note(format string, args ...any) {
	if !a.json {
		a.complain("sandbox: note: "+format+"\n", args...)
	}
}

// reportFailure tells that no answer came.
func (a *app) reportFailure(f *failure) {
	if a.json && a.printJSON(map[string]string{"error": "unreachable", "message": f.Error()}) == nil {
		return
	}
	a.complain("sandbox: %s\n", f.Error())
}

// client is a client of the gateway.
func (a *app) client() (*client.Client, error) {
	transport, err := a.transport()
	if err != nil {
		return nil, err
	}
	c, err := client.New(client.Config{URL: a.url, Token: a.token, HTTP: transport})
	if err != nil {
		return nil, fmt.Errorf("ROBOCO_SANDBOX_URL: %w", err)
	}
	return c, nil
}

// transport makes the calls; nil where nothing beside the system's authorities is trusted.
func (a *app) transport() (*http.Client, error) {
	if a.ca == "" {
		return nil, nil //nolint:nilnil // the client's own will do
	}
	pem, err := os.ReadFile(a.ca)
	if err != nil {
		return nil, fmt.Errorf("ROBOCO_SANDBOX_CA: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("ROBOCO_SANDBOX_CA: %s holds no certificate", a.ca)
	}
	return &http.Client{Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool},
	}}, nil
}

// action makes a command's work of a function over a client with a token.
func (a *app) action(do func(cmd *cobra.Command, c *client.Client, args []string) error) func(*cobra.Command, []string) error {
	work := a.work(do)
	return func(cmd *cobra.Command, args []string) error {
		if err := checkToken(a.token); err != nil {
			return err
		}
		return work(cmd, args)
	}
}

// open is action for what needs no token, and is not to fail for a bad one.
func (a *app) open(do func(cmd *cobra.Command, c *client.Client, args []string) error) func(*cobra.Command, []string) error {
	work := a.work(do)
	return func(cmd *cobra.Command, args []string) error {
		a.token = ""
		return work(cmd, args)
	}
}

// checkToken refuses what no gateway could know, before any is asked. The token is not repeated.
func checkToken(token string) error {
	switch {
	case strings.TrimSpace(token) == "":
		return &usageError{"ROBOCO_SANDBOX_TOKEN is not set: it is the caller's token, which an operator makes (sandbox agents add)"}
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return &usageError{"ROBOCO_SANDBOX_TOKEN is no token: it holds a space, a line's end or another character that none has"}
	default:
		return nil
	}
}

// work calls do with a client; its errors are failures, not misuse.
func (a *app) work(do func(cmd *cobra.Command, c *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := a.client()
		if err != nil {
			return err
		}
		err = do(cmd, c, args)
		var misuse *usageError
		if err == nil || errors.As(err, &misuse) {
			return err
		}
		return &failure{err}
	}
}

// usageError says that a command was called wrongly, where only its work could find out.
type usageError struct{ problem string }

// Error is the problem.
func (e *usageError) Error() string { return e.problem }

// printJSON writes a value for machines.
func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

// print writes v as JSON where that was asked for, else what people writes.
func (a *app) print(v any, people func(w io.Writer)) error {
	if a.json {
		return a.printJSON(v)
	}
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 4, 2, ' ', 0)
	people(w)
	if err := w.Flush(); err != nil {
		return fmt.Errorf("lay the answer out: %w", err)
	}
	if _, err := io.WriteString(a.out, text.String()); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

// line writes one row of a table; its columns are aligned by print.
func line(w io.Writer, columns ...string) {
	_, _ = fmt.Fprintln(w, strings.Join(columns, "\t"))
}

// dash stands for what is not there.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// list is a list of words for people: null apart from empty.
func list(words []string, none string) string {
	switch {
	case words == nil:
		return none
	case len(words) == 0:
		return "(none)"
	default:
		return strings.Join(words, ",")
	}
}
