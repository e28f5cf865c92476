package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
)

const longHelp = `sandboxd gives every coding agent its own throwaway Postgres, Redis and Mongo, on demand.

A worker owns the container engine and does the work; a gateway answers agents and operators over HTTP; both meet in one
Redis and one Postgres. "sandboxd dev" is all of it in one process and needs Docker only.

All configuration comes from the environment: "sandboxd help environment" lists every variable with its default.
SIGTERM or SIGINT drains and exits with 0; a second one stops at once.`

// root is the whole command tree.
func (p program) root() *cobra.Command {
	root := &cobra.Command{
		Use: "sandboxd", Short: "Throwaway databases for coding agents", Long: longHelp, Version: version(),
		SilenceUsage: true, SilenceErrors: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(p.workerCommand(), p.gatewayCommand(), p.devCommand(), p.migrateCommand(), p.checkCommand(), p.versionCommand(), p.environmentTopic())
	return root
}

// work makes a command's work of a function over the configuration; its errors are failures, not misuse.
func (p program) work(do func(ctx context.Context, cfg config, log zerolog.Logger) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		cfg, err := loadConfig(p.environ)
		if err != nil {
			return err
		}
		log := p.logger(cfg)
		redis.SetLogger(quiet{log})
		if err := do(cmd.Context(), cfg, log); err != nil {
			var setting *settingError
			if errors.As(err, &setting) {
				return err
			}
			return &failure{err}
		}
		return nil
	}
}

// logger writes to the error output, for machines or for people.
func (p program) logger(cfg config) zerolog.Logger {
	out := zerolog.New(p.err)
	if cfg.LogFormat == formatConsole {
		out = zerolog.New(zerolog.ConsoleWriter{Out: p.err, TimeFormat: "15:04:05.000", NoColor: !p.terminal})
	}
	return out.Level(cfg.level()).With().Timestamp().Logger()
}

// quiet is where the Redis client tells what it also returns as errors.
type quiet struct{ log zerolog.Logger }

// Printf logs for whoever debugs.
func (q quiet) Printf(_ context.Context, format string, v ...any) { q.log.Debug().Msgf(format, v...) }

func (p program) workerCommand() *cobra.Command {
	return &cobra.Command{
		Use: "worker", Short: "Consume events: provision and remove sandboxes, keep the engine clean", Args: cobra.NoArgs,
		Long: `Consumes the work stream and owns the container engine: it provisions and removes sandboxes and runs the janitor. Any number
of workers may share one Redis, one Postgres and one engine; one that dies loses nothing.

It needs ROBOCO_REDIS_URL, ROBOCO_DATABASE_URL (with the schema that "sandboxd migrate" makes) and a container engine
(DOCKER_HOST, else the docker command's context, else its usual socket). ROBOCO_SANDBOX_WORKER_LISTEN serves /healthz,
/readyz and /metrics. On SIGTERM it finishes what is under way within ROBOCO_SANDBOX_DRAIN and hands back the rest.`,
		RunE: p.work(p.runWorker),
	}
}

func (p program) gatewayCommand() *cobra.Command {
	return &cobra.Command{
		Use: "gateway", Short: "Answer agents and operators over HTTP and MCP", Args: cobra.NoArgs,
		Long: `Serves the HTTP API, MCP at /mcp, /openapi.json, probes and metrics at ROBOCO_SANDBOX_LISTEN. It never opens the container
engine's socket. Any number of gateways may share one Redis and one Postgres.

It needs ROBOCO_REDIS_URL and ROBOCO_DATABASE_URL; ROBOCO_SANDBOX_OPERATOR_TOKEN is the first operator's token.`,
		RunE: p.work(p.runGateway),
	}
}

// checkCommand only reads the configuration.
func (p program) checkCommand() *cobra.Command {
	return &cobra.Command{
		Use: "check", Short: "Check the configuration, and nothing else", Args: cobra.NoArgs,
		Long: `Reads the environment as every other command does at its start, and says "ok" or what is wrong with which variable. Nothing
is connected to, and a store's address that is missing is not missed.`,
		RunE: func(*cobra.Command, []string) error {
			if _, err := loadConfig(p.environ); err != nil {
				return err
			}
			_, err := fmt.Fprintln(p.out, "ok")
			return err //nolint:wrapcheck // the output's own
		},
	}
}

func (p program) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print this program's version", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(p.out, "sandboxd version "+version())
			return err //nolint:wrapcheck // the output's own
		},
	}
}

// environmentTopic lists the variables.
func (program) environmentTopic() *cobra.Command {
	var b strings.Builder
	b.WriteString("Every variable that sandboxd reads, with its default. Durations are Go's (180s, 12h), sizes Docker's (512m), switches\n" +
		"true or false. A value that does not parse, or an unknown ROBOCO_SANDBOX_ name, stops the start.\n\n")
	w := tabwriter.NewWriter(&b, 0, 4, 2, ' ', 0)
	for _, v := range variables() {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", v.Name, orNone(v.Default), v.About)
	}
	_ = w.Flush() // to memory
	return &cobra.Command{Use: "environment", Short: "Every environment variable with its default", Long: strings.TrimSpace(b.String())}
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
