package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/hubstate/hubstate/internal/ops"
	"github.com/hubstate/hubstate/outbox"
	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"
)

func newReplayCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "Send dead letters again: plan, let somebody else approve, run",
		Long: `Send dead letters again, once their cause is mended:

  relay replay plan --code MESSAGE_TOO_LARGE --reason "topic limit raised"     what will be sent, and what consumers will do with it
  relay replay approve PLAN --digest DIGEST --reason "checked"                 by another identity
  relay replay run PLAN --reason "after hours"                                 sends it

A replayed event has its original payload, message id and (epoch, sequence), and the header ce_replay. A consumer that has
seen something newer of the stream drops it; that is what the gate is for. To say a device's current state again instead,
use ingest restate.`,
	}
	cmd.AddCommand(newReplayPlanCommand(), newReplayListCommand(), newReplayShowCommand(), newReplayApproveCommand(), newReplayRunCommand())
	return cmd
}

func newReplayPlanCommand() *cobra.Command {
	cfg := newConfig()
	var letters letterFlags
	var flags decisionFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Choose dead letters and show what replaying them will do; sends nothing",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := letters.filter(time.Now())
			if err != nil {
				return err
			}
			if flags.reason == "" {
				return ops.UsageError(errors.New("--reason must be given"))
			}
			return replayPlan(cmd, cfg, filter, flags, asJSON)
		},
	}
	cfg.flags(cmd, &cfg.Database)
	letters.add(cmd)
	flags.add(cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func replayPlan(cmd *cobra.Command, cfg *config, filter outbox.LetterFilter, flags decisionFlags, asJSON bool) error {
	op, err := openOperator(cmd, cfg, flags)
	if err != nil {
		return err
	}
	defer op.close()
	var plan *outbox.ReplayPlan
	err = op.transaction(func(tx pgx.Tx) (err error) {
		plan, err = outbox.PlanReplay(cmd.Context(), tx, filter, op.decision)
		return err
	})
	if err != nil {
		return err
	}
	if asJSON {
		return printPlanJSON(cmd.OutOrStdout(), plan)
	}
	printPlan(cmd.OutOrStdout(), plan)
	fmt.Fprintf(cmd.OutOrStdout(), "\nnothing was sent. Somebody else approves it with\n  relay replay approve %s --digest %s --reason …\n", plan.ID, plan.Digest[:16])
	return nil
}

func printPlanJSON(out io.Writer, plan *outbox.ReplayPlan) error {
	return printJSON(out, struct {
		Version int                `json:"version"`
		Plan    *outbox.ReplayPlan `json:"plan"`
	}{1, plan})
}

func printPlan(out io.Writer, p *outbox.ReplayPlan) {
	fmt.Fprintf(out, "plan %s: %s, %s\n", p.ID, p.State, plural(int64(p.Count), "event"))
	fmt.Fprintf(out, "digest   %s\n", p.Digest)
	fmt.Fprintf(out, "planned  by %s (login %s) at %s: %s\n", p.PlannedBy, p.PlannedLogin, instant(&p.PlannedAt), p.Reason)
	if p.ApprovedBy != nil {
		fmt.Fprintf(out, "approved by %s (login %s) at %s\n", *p.ApprovedBy, text(p.ApprovedLogin), instant(p.ApprovedAt))
	}
	if p.RunBy != nil {
		fmt.Fprintf(out, "run      by %s, started %s, finished %s\n", *p.RunBy, instant(p.StartedAt), instant(p.FinishedAt))
	}
	fmt.Fprintln(out)
	t := newTable(out, "#", "POSITION", "DEVICE", "STREAM", "EPOCH", "SEQUENCE", "ERROR", "UP-TO-DATE CONSUMER", "CONSUMER BEHIND IT", "OUTCOME")
	for i := range p.Items {
		it := &p.Items[i]
		t.row(it.Ordinal, it.Position, it.AggregateID, it.Stream, it.Epoch, it.Sequence, it.ErrorCode, expectation(it), outbox.ForecastApplied, outcome(it))
	}
	_ = t.Flush()
}

func expectation(it *outbox.ReplayItem) string {
	epoch, sequence, ok := it.Newest()
	switch {
	case it.Forecast == outbox.ForecastParked:
		return "applied (published by the bucket's owner, then what waits behind it)"
	case ok:
		return fmt.Sprintf("dropped (has seen %d/%d)", epoch, sequence)
	}
	return it.Forecast
}

func outcome(it *outbox.ReplayItem) string {
	if it.Outcome == nil {
		return ""
	}
	if text(it.Error) != "" {
		return *it.Outcome + ": " + *it.Error
	}
	return *it.Outcome
}

func newReplayListCommand() *cobra.Command {
	cfg := newConfig()
	var asJSON bool
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List replay plans, newest first",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cfg.load(cmd); err != nil {
				return err
			}
			return replayList(cmd, cfg, limit, asJSON)
		},
	}
	cfg.flags(cmd, &cfg.Database)
	jsonFlag(cmd, &asJSON)
	cmd.Flags().IntVar(&limit, "limit", 20, "at most this many")
	return cmd
}

func replayList(cmd *cobra.Command, cfg *config, limit int, asJSON bool) error {
	conn, err := cfg.reader(cmd.Context())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(cmd.Context()))
	plans, err := outbox.ReplayPlans(cmd.Context(), conn, limit)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(cmd.OutOrStdout(), struct {
			Version int                 `json:"version"`
			Plans   []outbox.ReplayPlan `json:"plans"`
		}{1, append([]outbox.ReplayPlan{}, plans...)})
	}
	t := newTable(cmd.OutOrStdout(), "PLAN", "STATE", "EVENTS", "PLANNED BY", "PLANNED", "APPROVED BY", "RUN BY", "REASON")
	for i := range plans {
		p := &plans[i]
		t.row(p.ID, p.State, p.Count, p.PlannedBy, instant(&p.PlannedAt), text(p.ApprovedBy), text(p.RunBy), p.Reason)
	}
	return t.Flush()
}

func newReplayShowCommand() *cobra.Command {
	cfg := newConfig()
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show PLAN",
		Short: "Show a replay plan and what became of its events",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := planID(args[0])
			if err != nil {
				return err
			}
			if err := cfg.load(cmd); err != nil {
				return err
			}
			conn, err := cfg.reader(cmd.Context())
			if err != nil {
				return err
			}
			defer conn.Close(context.WithoutCancel(cmd.Context()))
			plan, err := outbox.ReadReplayPlan(cmd.Context(), conn, id)
			if err != nil {
				return err
			}
			if asJSON {
				return printPlanJSON(cmd.OutOrStdout(), plan)
			}
			printPlan(cmd.OutOrStdout(), plan)
			return nil
		},
	}
	cfg.flags(cmd, &cfg.Database)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func planID(s string) (uuid.UUID, error) {
	id, err := uuid.Parse(s)
	if err != nil {
		return id, ops.UsageError(fmt.Errorf("plan %q: must be the id that `relay replay plan` printed", s))
	}
	return id, nil
}

func newReplayApproveCommand() *cobra.Command {
	cfg := newConfig()
	var flags decisionFlags
	var digest string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "approve PLAN",
		Short: "Agree to exactly this plan; must be another identity than the planner",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := planID(args[0])
			if err != nil {
				return err
			}
			if flags.reason == "" || digest == "" {
				return ops.UsageError(errors.New("--digest and --reason must be given"))
			}
			return replayApprove(cmd, cfg, id, digest, flags, asJSON)
		},
	}
	cfg.flags(cmd, &cfg.Database)
	flags.add(cmd)
	jsonFlag(cmd, &asJSON)
	cmd.Flags().StringVar(&digest, "digest", "", "the plan's digest, or at least its first 12 characters")
	return cmd
}

func replayApprove(cmd *cobra.Command, cfg *config, id uuid.UUID, digest string, flags decisionFlags, asJSON bool) error {
	op, err := openOperator(cmd, cfg, flags)
	if err != nil {
		return err
	}
	defer op.close()
	var plan *outbox.ReplayPlan
	err = op.transaction(func(tx pgx.Tx) (err error) {
		if _, err := outbox.ApproveReplay(cmd.Context(), tx, id, digest, op.decision); err != nil {
			return err
		}
		plan, err = outbox.ReadReplayPlan(cmd.Context(), tx, id)
		return err
	})
	if err != nil {
		return err
	}
	if asJSON {
		return printPlanJSON(cmd.OutOrStdout(), plan)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "plan %s approved by %s; run it with\n  relay replay run %s --reason …\n", id, op.decision.By, id)
	return nil
}

func newReplayRunCommand() *cobra.Command {
	cfg := newConfig()
	var flags decisionFlags
	var asJSON bool
	rate := outbox.Rate{Records: 100}
	cmd := &cobra.Command{
		Use:   "run PLAN",
		Short: "Send what an approved plan says; run again after an outage to send the rest",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := planID(args[0])
			if err != nil {
				return err
			}
			if flags.reason == "" || rate.Records < 1 || rate.Bytes < 0 {
				return ops.UsageError(errors.New("--reason must be given, --rate at least 1, --bytes-rate not negative"))
			}
			return replayRun(cmd, cfg, id, flags, rate, asJSON)
		},
	}
	cfg.flags(cmd, &cfg.Database, &cfg.Kafka)
	flags.add(cmd)
	jsonFlag(cmd, &asJSON)
	cmd.Flags().IntVar(&rate.Records, "rate", rate.Records, "events a second at most")
	cmd.Flags().IntVar(&rate.Bytes, "bytes-rate", 0, "bytes a second at most; 0 = no limit")
	return cmd
}

func replayRun(cmd *cobra.Command, cfg *config, id uuid.UUID, flags decisionFlags, rate outbox.Rate, asJSON bool) error {
	op, err := openOperator(cmd, cfg, flags)
	if err != nil {
		return err
	}
	defer op.close()
	client, err := cfg.kafkaClient(outbox.ReplayOptions()...)
	if err != nil {
		return err
	}
	defer client.Close()
	r := outbox.Replayer{Client: client, Topic: op.settings.Topic, Cell: op.settings.Cell, Partitions: op.settings.TopicPartitions, Rate: rate}
	result, err := r.Run(cmd.Context(), op.conn, id, op.decision)
	if err == nil && asJSON {
		return printJSON(cmd.OutOrStdout(), struct {
			Version int                 `json:"version"`
			PlanID  uuid.UUID           `json:"plan_id"`
			Result  outbox.ReplayResult `json:"result"`
		}{1, id, result})
	}
	if result != (outbox.ReplayResult{}) {
		fmt.Fprintf(cmd.OutOrStdout(), "plan %s: %d sent, %d releasing, %d changed, %d failed, %d skipped, %d left\n",
			id, result.Sent, result.Releasing, result.Changed, result.Failed, result.Skipped, result.Left)
	}
	return err
}
