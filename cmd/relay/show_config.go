package main

import (
	"github.com/hubstate/hubstate/internal/ops"
	"github.com/spf13/cobra"
)

func newConfigCommand() *cobra.Command {
	cfg := newConfig()
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the effective configuration as YAML, secrets masked, and check it",
		Long: `Print what the relay would work with, from file, environment and flags, and check it as run does. Exit code 2 when it
would be refused. It connects to nothing.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := ops.Load(cmd.Flags(), cfg); err != nil {
				return err
			}
			if err := ops.WriteConfig(cmd.OutOrStdout(), cfg); err != nil {
				return err
			}
			return cfg.validateRun()
		},
	}
	cfg.flags(cmd, &cfg.Database, &cfg.Kafka, &cfg.Engine, &cfg.Partitions, &cfg.Daemon)
	return cmd
}
