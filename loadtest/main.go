// Command loadtest is how one convinces oneself: it sends the reports of thousands of devices through a pipeline, breaks
// what it is told to break, and then accounts for every report that was acknowledged: in PostgreSQL, on the whole Kafka
// topic and at a consumer.
//
//	run      a scenario, on servers it starts itself or on an installation by URL
//	verify   the checks alone, from the ledger of an earlier run
//	report   a page about a run
//	compare  two runs side by side
//	peers    the relay, Debezium and watermill-sql on the same rows
//
// Its oracle shares no deciding code with the product: see package oracle.
package main

import (
	"github.com/spf13/cobra"

	"github.com/hubstate/hubstate/internal/ops"
)

func main() {
	root := &cobra.Command{
		Use:   "loadtest",
		Short: "Load the pipeline, break it, and account for every report",
		Long: `Load the pipeline, break it, and account for every report.

Without addresses a real Mosquitto, PostgreSQL, Kafka and Redis of this machine are started in a temporary directory, and
the programs ingest and relay beside this one. With addresses an existing installation is tested.`,
	}
	root.AddCommand(newRunCommand(), newVerifyCommand(), newReportCommand(), newCompareCommand(), newScenariosCommand(), newPeersCommand())
	ops.Main(root)
}
