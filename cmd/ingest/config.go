package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hubstate/hubstate/ingest"
	"github.com/hubstate/hubstate/internal/ops"
	"github.com/hubstate/hubstate/internal/schema"
)

// config is everything an ingest process reads.
type config struct {
	DatabaseURL string `koanf:"database_url" secret:"true" help:"PostgreSQL of the cell, postgres://user:password@host:port/database"`
	ingest.Config
	AdminAddr string `koanf:"admin_addr" help:"address of /metrics, /healthz and /readyz, host:port; empty = none"`
	Pprof     bool   `koanf:"pprof" help:"serve /debug/pprof on admin_addr"`
	LogLevel  string `koanf:"log_level" help:"debug, info, warn or error"`
	LogFormat string `koanf:"log_format" help:"text or json"`
}

func defaultConfig() config {
	return config{Config: ingest.DefaultConfig(), AdminAddr: "127.0.0.1:9101", LogLevel: "info", LogFormat: "text"}
}

// loadRun reads the configuration of the daemon and refuses it with all its problems in one message.
func loadRun(flags *pflag.FlagSet) (config, error) {
	cfg := defaultConfig()
	if err := ops.Load(flags, &cfg); err != nil {
		return cfg, err
	}
	var p ops.Problems
	p.Require("database_url", cfg.DatabaseURL)
	for _, err := range cfg.Problems() {
		p.Merge("", err)
	}
	if cfg.AdminAddr != "" {
		p.HostPort("admin_addr", cfg.AdminAddr)
	}
	p.OneOf("log_level", cfg.LogLevel, "debug", "info", "warn", "error")
	p.OneOf("log_format", cfg.LogFormat, "text", "json")
	return cfg, p.Err()
}

// database is the configuration of the operator's commands.
type database struct {
	URL string `koanf:"database_url" secret:"true" help:"PostgreSQL of the cell, postgres://user:password@host:port/database"`
}

// open connects and checks the schema. A command that changes states needs the rights of the ingest role; one that looks
// takes none, so any login that may read will do, and cannot write by mistake.
func (d *database) open(ctx context.Context, cmd *cobra.Command, changes bool) (*pgxpool.Pool, schema.Settings, error) {
	if err := ops.Load(cmd.Flags(), d); err != nil {
		return nil, schema.Settings{}, err
	}
	var p ops.Problems
	p.Require("database_url", d.URL)
	if err := p.Err(); err != nil {
		return nil, schema.Settings{}, err
	}
	role, session := "", map[string]string{"default_transaction_read_only": "on", "statement_timeout": "30s"}
	if changes {
		role, session = ingest.Role, ingest.SessionSettings()
	}
	pool, err := ops.OpenPool(ctx, d.URL, role, "hubstate-ingest-operator", session, 2)
	if err != nil {
		return nil, schema.Settings{}, err
	}
	settings, err := schema.Check(ctx, pool)
	if err != nil {
		pool.Close()
		return nil, settings, fmt.Errorf("check the schema: %w", err)
	}
	return pool, settings, nil
}

func newConfig() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the effective configuration with all limits, secrets masked, and check it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadRun(cmd.Flags())
			if printErr := printConfig(cmd, cfg, asJSON); printErr != nil {
				return printErr
			}
			return err
		},
	}
	cfg := defaultConfig()
	ops.AddFlags(cmd.Flags(), &cfg)
	jsonFlag(cmd, &asJSON)
	return cmd
}
