// Command ingest takes device reports from MQTT into PostgreSQL: state and event in one transaction, acknowledged after
// its commit. It also holds the operator's tools for what it stores: rejects, gaps, lanes.
package main

import (
	"github.com/spf13/cobra"

	"github.com/hubstate/hubstate/internal/ops"
)

func main() {
	ops.Main(newRoot())
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "ingest",
		Short: "Take device reports from MQTT into PostgreSQL without losing one, and look after what could not be applied",
	}
	root.AddCommand(newRun(), newConfig(), newProfile(), newRejects(), newGaps(), newStatus(), newAcceptReboot(), newRestate(), newMove())
	return root
}
