// Command hub runs the whole pipeline in one process tree: PostgreSQL, an MQTT broker, Kafka, Redis, one ingester, two
// relays, the monitor and a simulated fleet. It is what `make run` starts: the quickest way to see a device's report
// travel to the screen, and a place to break things.
//
// Every server it needs is taken from its URL when one is given, from this machine's real ones with --real, and is
// embedded otherwise (only PostgreSQL is always real). Data are kept between runs.
package main

import (
	"github.com/hubstate/hubstate/internal/ops"
	"github.com/spf13/cobra"
)

func main() { ops.Main(newRoot()) }

func newRoot() *cobra.Command {
	cfg := defaultConfig()
	root := &cobra.Command{
		Use:   "hub",
		Short: "Run the whole pipeline on this machine, with a simulated fleet",
		Long: `Run the whole pipeline on this machine, with a simulated fleet, until Ctrl-C. It prints where everything is and then
one line a second of what flows. A second start goes on with the data of the first.

A server whose URL is given (--database-url, --mqtt-url, --kafka-brokers, --redis-url) is used as it is; the database is
migrated. The others are started on loopback.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cfg.load(cmd.Flags()); err != nil {
				return err
			}
			return newHub(cfg, cmd.OutOrStdout()).run(cmd.Context())
		},
	}
	ops.AddFlags(root.Flags(), cfg)
	return root
}
