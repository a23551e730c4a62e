package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/hubstate/hubstate/internal/ops"
	"github.com/hubstate/hubstate/outbox"
	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"
)

func newEraseCommand() *cobra.Command {
	cfg := newConfig()
	var flags decisionFlags
	var yes, asJSON bool
	cmd := &cobra.Command{
		Use:   "erase DEVICE",
		Short: "Remove what this database knows of a device",
		Long: `Remove a device from state, gaps, rejects, dead letters and published events, with an audit row. Without --yes nothing is
changed and the output says what would be.

It refuses while an event of the device is unpublished or a dead letter of it is undecided. Events in partitions that are
still attached go when those are sealed. Archives whose table still stands are written again without the device. What it
cannot reach, it says: the Kafka topic, consumers' stores, archives of dropped partitions, restored tables, backups.

Should the device report again, it starts a new life in a higher epoch, which every consumer takes.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if flags.reason == "" {
				return ops.UsageError(errors.New("--reason must be given"))
			}
			op, err := openOperator(cmd, cfg, flags)
			if err != nil {
				return err
			}
			defer op.close()
			return (&eraser{operator: op, device: args[0], asJSON: asJSON}).run(yes)
		},
	}
	cfg.flags(cmd, &cfg.Database)
	flags.add(cmd)
	jsonFlag(cmd, &asJSON)
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	return cmd
}

// eraser erases one device. Its first step is one transaction; the events go partition by partition after it, and what
// an interruption leaves is found again by the next call.
type eraser struct {
	*operator
	device string
	asJSON bool
	report erasure
}

// erasure is the outcome, as JSON too.
type erasure struct {
	Version     int              `json:"version"`
	Device      string           `json:"device"`
	Done        bool             `json:"done"` // false: nothing was changed
	Erased      map[string]int64 `json:"erased"`
	AttachedTo  *time.Time       `json:"attached_until"` // events in partitions up to here go when those are sealed
	Unreachable []string         `json:"unreachable"`
}

// errDryRun rolls a dry run back.
var errDryRun = errors.New("dry run")

func (e *eraser) run(yes bool) error {
	e.report = erasure{Version: 1, Device: e.device, Done: yes}
	ctx := e.cmd.Context()
	var id int64
	err := e.transaction(func(tx pgx.Tx) (err error) {
		if id, err = e.begin(ctx, tx); err == nil && !yes {
			err = errDryRun
		}
		return err
	})
	if err != nil && !errors.Is(err, errDryRun) {
		return fmt.Errorf("erase %s: %w", e.device, err)
	}
	if yes {
		if err := e.history(ctx, id); err != nil {
			return fmt.Errorf("erase published events of %s (call it again to go on): %w", e.device, err)
		}
	}
	if err := e.beyond(ctx); err != nil {
		return err
	}
	return e.print(e.cmd.OutOrStdout())
}

// begin is the transaction under the device's bucket lock. It also finds out what will be left to the sealing.
func (e *eraser) begin(ctx context.Context, tx pgx.Tx) (id int64, err error) {
	bucket := outbox.Bucket(e.device, e.settings.Buckets)
	if err := tx.QueryRow(ctx, eraseDevice, e.device, bucket, e.decision.By, e.decision.Reason).Scan(&id, &e.report.Erased); err != nil {
		return 0, err
	}
	if err := tx.QueryRow(ctx, selectErasure, id).Scan(&e.report.AttachedTo); err != nil {
		return 0, err
	}
	var events int64
	if err := tx.QueryRow(ctx, countSealed, e.device).Scan(&events); err != nil {
		return 0, err
	}
	e.report.Erased["events"] = events
	return id, nil
}

func (e *eraser) history(ctx context.Context, id int64) error {
	rows, err := e.conn.Query(ctx, selectSealed)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	e.report.Erased["events"] = 0
	for _, name := range names {
		var n int64
		if err := e.conn.QueryRow(ctx, erasePartition, id, name).Scan(&n); err != nil {
			return err
		}
		e.report.Erased["events"] += n
	}
	return nil
}

// beyond says what no statement here reaches.
func (e *eraser) beyond(ctx context.Context) error {
	var archives int64
	var from, to *time.Time
	if err := e.conn.QueryRow(ctx, selectBeyond).Scan(&archives, &from, &to); err != nil {
		return fmt.Errorf("look for archives of dropped partitions: %w", err)
	}
	e.report.Unreachable = []string{
		"Kafka topic " + e.settings.Topic + ": its records go by the topic's retention",
		"stores of consumers, tables made by relay partitions restore, backups of this database",
	}
	if archives > 0 {
		e.report.Unreachable = append(e.report.Unreachable,
			fmt.Sprintf("%s of dropped partitions, from %s to %s", plural(archives, "archive"), instant(from), instant(to)))
	}
	return nil
}

func (e *eraser) print(out io.Writer) error {
	if e.asJSON {
		return printJSON(out, e.report)
	}
	verb := "erased"
	if !e.report.Done {
		verb = "would erase"
	}
	fmt.Fprintf(out, "device %s: %s\n", e.device, verb)
	for _, what := range slices.Sorted(maps.Keys(e.report.Erased)) {
		fmt.Fprintf(out, "  %-14s %d\n", what, e.report.Erased[what])
	}
	if e.report.AttachedTo != nil {
		fmt.Fprintf(out, "published events in partitions up to %s go when those are sealed\n", instant(e.report.AttachedTo))
	}
	for _, what := range e.report.Unreachable {
		fmt.Fprintf(out, "out of reach: %s\n", what)
	}
	if !e.report.Done {
		fmt.Fprintln(out, "nothing was changed; with --yes it is")
	}
	return nil
}
