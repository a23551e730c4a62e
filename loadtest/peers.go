package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/hubstate/hubstate/loadtest/peers"
)

func newPeersCommand() *cobra.Command {
	opts := peers.Options{Rows: 500_000, WatermillRows: 20_000, Singles: 1_000, KillRows: 200_000, Devices: 20_000, Pairs: 5}
	var keep string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "peers",
		Short: "Let the relay, Debezium and watermill-sql send the same rows to the same Kafka",
		Long: `Let the relay, Debezium (outbox event router in Kafka Connect) and watermill-sql send the same rows to the same Kafka, one
after the other: a full outbox, single rows, and a backlog amid which each is killed with SIGKILL three times. Prints rate,
CPU of every process, memory, latency, and what was lost, repeated and reordered. The first run fetches Debezium through
Maven; watermill-sql is built by make bench/peers.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := opts.Validate(); err != nil {
				return err
			}
			dir, release, err := workingDir(keep)
			if err != nil {
				return err
			}
			defer release()
			opts.Dir, opts.Out = filepath.Clean(dir), cmd.ErrOrStderr()
			res, err := peers.Run(cmd.Context(), opts)
			if err != nil {
				return err
			}
			res.Print(cmd.ErrOrStderr())
			if !asJSON {
				return nil
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
	cmd.Flags().IntVar(&opts.WatermillRows, "watermill-rows", opts.WatermillRows, "rows of each of watermill-sql's drains")
	cmd.Flags().IntVar(&opts.Singles, "singles", opts.Singles, "single rows, 100 a second")
	cmd.Flags().IntVar(&opts.KillRows, "kill-rows", opts.KillRows, "backlog amid which each is killed")
	cmd.Flags().IntVar(&opts.Devices, "devices", opts.Devices, "devices the rows belong to")
	cmd.Flags().IntVar(&opts.Pairs, "pairs", opts.Pairs, "drains of each, in turn")
	cmd.Flags().StringSliceVar(&opts.Only, "only", nil, "some of hubstate, debezium, watermill; default all")
	cmd.Flags().StringVar(&opts.Bin, "bin", "", "where the programs relay and peer-watermill are; default beside this one")
	cmd.Flags().StringVar(&keep, "keep", "", "keep data and logs in this directory")
	cmd.Flags().BoolVar(&asJSON, "json", false, "end with one JSON object on standard output")
	return cmd
}
