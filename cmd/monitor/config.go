package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hubstate/hubstate/internal/monitor"
	"github.com/hubstate/hubstate/internal/ops"
)

// config is everything a monitor process reads.
type config struct {
	monitor.Config
	kafkaLogin
	AdminAddr string `koanf:"admin_addr" help:"address of /metrics, /healthz and /readyz, host:port"`
	Pprof     bool   `koanf:"pprof" help:"serve /debug/pprof on admin_addr"`
	LogLevel  string `koanf:"log_level" help:"debug, info, warn or error"`
	LogFormat string `koanf:"log_format" help:"text or json"`
}

func defaultConfig() config {
	return config{Config: monitor.DefaultConfig(), AdminAddr: "127.0.0.1:9103", LogLevel: "info", LogFormat: "text"}
}

// load reads the configuration and refuses it with all its problems in one message.
func load(flags *pflag.FlagSet) (config, error) {
	cfg := defaultConfig()
	if err := ops.Load(flags, &cfg); err != nil {
		return cfg, err
	}
	var p ops.Problems
	p.Merge("", cfg.Validate())
	_, err := monitor.LoadProfiles(cfg.Profiles)
	p.Merge("", err)
	_, err = monitor.LoadExpected(cfg.ExpectedDevices)
	p.Merge("", err)
	cfg.validate(&p)
	if cfg.AdminAddr != "" {
		p.HostPort("admin_addr", cfg.AdminAddr)
	}
	p.OneOf("log_level", cfg.LogLevel, "debug", "info", "warn", "error")
	p.OneOf("log_format", cfg.LogFormat, "text", "json")
	return cfg, p.Err()
}

func newConfig() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the effective configuration as YAML, secrets masked, and check it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := load(cmd.Flags())
			if writeErr := ops.WriteConfig(cmd.OutOrStdout(), &cfg); writeErr != nil {
				return writeErr
			}
			return err
		},
	}
	cfg := defaultConfig()
	ops.AddFlags(cmd.Flags(), &cfg)
	return cmd
}
