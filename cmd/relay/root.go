package main

import (
	"github.com/hubstate/hubstate/internal/ops"
	"github.com/spf13/cobra"
)

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:     "relay",
		Short:   "Publish the outbox to Kafka, see what is published, decide about what is not",
		Version: version(),
	}
	root.AddCommand(commands()...)
	return root
}

// commands lists every command; each has a file of its own.
func commands() []*cobra.Command {
	return []*cobra.Command{
		newRunCommand(),
		newConfigCommand(),
		newMigrateCommand(),
		newStatusCommand(),
		newDeadCommand(),
		newReplayCommand(),
		newDiscardCommand(),
		newReconcileCommand(),
		newRebaseCommand(),
		newPartitionsCommand(),
		newEraseCommand(),
	}
}

func version() string {
	version, revision := ops.Build()
	return version + " (" + revision + ")"
}
