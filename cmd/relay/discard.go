package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/hubstate/hubstate/internal/ops"
	"github.com/hubstate/hubstate/outbox"
	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"
)

func newDiscardCommand() *cobra.Command {
	cfg := newConfig()
	var flags decisionFlags
	var confirmed, asJSON bool
	cmd := &cobra.Command{
		Use:   "discard POSITION…",
		Short: "Give dead letters up for good",
		Long: `Give dead letters up for good. Without --yes it only shows them. What waits behind one of them (on_dead: hold) is then
published by its bucket's owner; consumers are told of the missing event by ce_skipped.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			positions, err := parsePositions(args)
			if err != nil {
				return err
			}
			if flags.reason == "" {
				return ops.UsageError(errors.New("--reason must be given"))
			}
			return discard(cmd, cfg, flags, positions, confirmed, asJSON)
		},
	}
	cfg.flags(cmd, &cfg.Database)
	flags.add(cmd)
	jsonFlag(cmd, &asJSON)
	cmd.Flags().BoolVar(&confirmed, "yes", false, "do it")
	return cmd
}

func parsePositions(args []string) ([]int64, error) {
	var positions []int64
	for _, a := range args {
		p, err := strconv.ParseInt(a, 10, 64)
		if err != nil {
			return nil, ops.UsageError(fmt.Errorf("position %q: must be a number", a))
		}
		positions = append(positions, p)
	}
	return positions, nil
}

func discard(cmd *cobra.Command, cfg *config, flags decisionFlags, positions []int64, confirmed, asJSON bool) error {
	op, err := openOperator(cmd, cfg, flags)
	if err != nil {
		return err
	}
	defer op.close()
	if confirmed {
		err = op.transaction(func(tx pgx.Tx) error { return outbox.Discard(cmd.Context(), tx, positions, op.decision) })
		if err != nil {
			return err
		}
		return printDiscarded(cmd.OutOrStdout(), discarded{1, true, positions, op.decision.By}, asJSON)
	}
	letters, err := outbox.Letters(cmd.Context(), op.conn, outbox.LetterFilter{States: []string{outbox.LetterDead}, Positions: positions})
	if err != nil {
		return err
	}
	d := discarded{1, false, []int64{}, op.decision.By}
	for i := range letters {
		d.Positions = append(d.Positions, letters[i].Position)
	}
	if !asJSON {
		printLetters(cmd.OutOrStdout(), letters, len(positions)+1)
	}
	return printDiscarded(cmd.OutOrStdout(), d, asJSON)
}

// discarded is `relay discard --json`; docs/cli-json.md is its contract.
type discarded struct {
	Version   int     `json:"version"`
	Done      bool    `json:"done"` // false: dry run
	Positions []int64 `json:"positions"`
	By        string  `json:"decided_by"`
}

func printDiscarded(out io.Writer, d discarded, asJSON bool) error {
	if asJSON {
		return printJSON(out, d)
	}
	if !d.Done {
		fmt.Fprintf(out, "dry run: %s would be discarded; repeat with --yes\n", plural(int64(len(d.Positions)), "dead letter"))
		return nil
	}
	fmt.Fprintf(out, "%s discarded by %s\n", plural(int64(len(d.Positions)), "dead letter"), d.By)
	return nil
}
