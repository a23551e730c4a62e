package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/hubstate/hubstate/loadtest/peers"
)

func newPeersCommand() *cobra.Command {
	opts := peers.Options{Rows: 500_000, Devices: 20_000, Pairs: 3}
	var keep string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "peers",
		Short: "Let the relay and Debezium drain the same outbox into the same Kafka",
		Long: `Let the relay and Debezium (outbox event router in Kafka Connect) drain the same outbox into the same Kafka, in
alternating order, and print rate, CPU, memory and order of each. The first run fetches Debezium through Maven.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, release, err := workingDir(keep)
			if err != nil {
				return err
			}
			defer release()
			opts.Dir, opts.Out = filepath.Clean(dir), cmd.ErrOrStderr()
			res, err := peers.Run(cmd.Context(), opts)
			if err != nil || !asJSON {
				return err
			}
			line, err := json.Marshal(res)
			if err != nil {
				return fmt.Errorf("print the result: %w", err)
			}
			fmt.Fprintln(cmd.OutOrStdout(), string(line))
			return nil
		},
	}
	cmd.Flags().IntVar(&opts.Rows, "rows", opts.Rows, "rows of each drain")
	cmd.Flags().IntVar(&opts.Devices, "devices", opts.Devices, "devices the rows belong to")
	cmd.Flags().IntVar(&opts.Pairs, "pairs", opts.Pairs, "drains of each, in turn")
	cmd.Flags().StringVar(&opts.Bin, "bin", "", "where the program relay is; default beside this one")
	cmd.Flags().StringVar(&keep, "keep", "", "keep data and logs in this directory")
	cmd.Flags().BoolVar(&asJSON, "json", false, "end with one JSON object on standard output")
	return cmd
}
