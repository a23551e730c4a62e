// Command monitor keeps the freshness view of all devices and serves it: a page for people, JSON, and metrics.
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
		Use:   "monitor",
		Short: "Show how old the truth is, and what is wrong: the device, the pipeline or the clock",
	}
	root.AddCommand(newRun(), newConfig())
	return root
}
