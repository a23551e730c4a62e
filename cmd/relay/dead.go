package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/hubstate/hubstate/internal/ops"
	"github.com/hubstate/hubstate/outbox"
	"github.com/spf13/cobra"
)

func newDeadCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "dead", Short: "Look at events that could not be published"}
	cmd.AddCommand(newDeadListCommand(), newDeadShowCommand())
	return cmd
}

// letterFlags choose dead letters; list and plan share them.
type letterFlags struct {
	device, code string
	since, until string
	positions    []int64
	limit        int
}

func (f *letterFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.device, "device", "", "only this device")
	cmd.Flags().StringVar(&f.code, "code", "", "only this error code, for example MESSAGE_TOO_LARGE")
	cmd.Flags().StringVar(&f.since, "since", "", "only failed at or after: a time (2026-01-02T15:04:05Z) or how long ago (24h)")
	cmd.Flags().StringVar(&f.until, "until", "", "only failed before: a time or how long ago")
	cmd.Flags().Int64SliceVar(&f.positions, "position", nil, "only these positions, comma list")
	cmd.Flags().IntVar(&f.limit, "limit", 1000, "at most this many")
}

func (f *letterFlags) filter(now time.Time) (outbox.LetterFilter, error) {
	out := outbox.LetterFilter{AggregateID: f.device, ErrorCode: f.code, Positions: f.positions, Limit: f.limit}
	if f.limit < 1 {
		return out, ops.UsageError(fmt.Errorf("--limit %d: must be at least 1", f.limit))
	}
	var err error
	if out.Since, err = moment(f.since, now); err != nil {
		return out, ops.UsageError(fmt.Errorf("--since: %w", err))
	}
	if out.Until, err = moment(f.until, now); err != nil {
		return out, ops.UsageError(fmt.Errorf("--until: %w", err))
	}
	return out, nil
}

// moment reads an instant, or a duration before now; empty is the zero time.
func moment(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(s); err == nil {
		return now.Add(-ago), nil
	}
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return at, fmt.Errorf("%q is neither a time like 2026-01-02T15:04:05Z nor a duration like 24h", s)
	}
	return at, nil
}

func newDeadListCommand() *cobra.Command {
	cfg := newConfig()
	var flags letterFlags
	var states []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List dead letters; without --state those that wait for somebody",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := flags.filter(time.Now())
			if err != nil {
				return err
			}
			filter.States = states
			return deadList(cmd, cfg, filter, asJSON)
		},
	}
	cfg.flags(cmd, &cfg.Database)
	flags.add(cmd)
	jsonFlag(cmd, &asJSON)
	cmd.Flags().StringSliceVar(&states, "state", nil, "dead, held, releasing, replayed, discarded or published, comma list")
	return cmd
}

func deadList(cmd *cobra.Command, cfg *config, filter outbox.LetterFilter, asJSON bool) error {
	if err := cfg.load(cmd); err != nil {
		return err
	}
	conn, err := cfg.reader(cmd.Context())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(cmd.Context()))
	letters, err := outbox.Letters(cmd.Context(), conn, filter)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(cmd.OutOrStdout(), struct {
			Version int             `json:"version"`
			Letters []outbox.Letter `json:"letters"`
		}{1, append([]outbox.Letter{}, letters...)})
	}
	printLetters(cmd.OutOrStdout(), letters, filter.Limit)
	return nil
}

func printLetters(out io.Writer, letters []outbox.Letter, limit int) {
	if len(letters) == 0 {
		fmt.Fprintln(out, "no dead letters")
		return
	}
	t := newTable(out, "POSITION", "STATE", "DEVICE", "STREAM", "EPOCH", "SEQUENCE", "BYTES", "ATTEMPTS", "FAILED", "ERROR")
	for i := range letters {
		l := &letters[i]
		t.row(l.Position, l.State, l.AggregateID, l.Stream, l.Epoch, l.Sequence, l.PayloadBytes, l.RowAttempts, instant(&l.FailedAt), l.ErrorCode)
	}
	_ = t.Flush()
	if len(letters) == limit {
		fmt.Fprintf(out, "only the first %d are shown; see --limit\n", limit)
	}
}

func newDeadShowCommand() *cobra.Command {
	cfg := newConfig()
	var asJSON, payload bool
	cmd := &cobra.Command{
		Use:   "show POSITION",
		Short: "Show one dead letter",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			position, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil {
				return ops.UsageError(fmt.Errorf("position %q: must be a number", args[0]))
			}
			return deadShow(cmd, cfg, position, asJSON, payload)
		},
	}
	cfg.flags(cmd, &cfg.Database)
	jsonFlag(cmd, &asJSON)
	cmd.Flags().BoolVar(&payload, "payload", false, "show the payload too: it may hold what this terminal should not")
	return cmd
}

func deadShow(cmd *cobra.Command, cfg *config, position int64, asJSON, withPayload bool) error {
	if err := cfg.load(cmd); err != nil {
		return err
	}
	conn, err := cfg.reader(cmd.Context())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(cmd.Context()))
	letter, payload, err := outbox.LetterAt(cmd.Context(), conn, position)
	if err != nil {
		return err
	}
	if !withPayload {
		payload = nil
	}
	if asJSON {
		return printJSON(cmd.OutOrStdout(), struct {
			Version int           `json:"version"`
			Letter  outbox.Letter `json:"letter"`
			Payload []byte        `json:"payload,omitempty"`
		}{1, letter, payload})
	}
	printLetter(cmd.OutOrStdout(), &letter, payload)
	return nil
}

func printLetter(out io.Writer, l *outbox.Letter, payload []byte) {
	t := newTable(out, "POSITION", strconv.FormatInt(l.Position, 10))
	t.row("state", l.State)
	t.row("device", l.AggregateID)
	t.row("stream", l.Stream)
	t.row("epoch, sequence", fmt.Sprintf("%d, %d", l.Epoch, l.Sequence))
	t.row("message", l.MessageID)
	t.row("event", fmt.Sprintf("%s v%d from %s", l.EventType, l.SchemaVersion, l.Source))
	t.row("bucket", l.Bucket)
	t.row("occurred", instant(l.OccurredAt))
	t.row("committed", instant(&l.CreatedAt))
	t.row("failed", instant(&l.FailedAt))
	t.row("attempts", l.RowAttempts)
	t.row("error", l.ErrorCode+": "+l.Error)
	t.row("later events", laterEvents(l))
	t.row("correlation", text(l.CorrelationID))
	t.row("trace", text(l.Traceparent))
	t.row("payload", fmt.Sprintf("%d bytes, sha256 %s", l.PayloadBytes, l.PayloadSHA256))
	if l.DecidedAt != nil {
		t.row("decided", fmt.Sprintf("%s by %s at %s", text(l.Decision), text(l.DecidedBy), instant(l.DecidedAt)))
	}
	_ = t.Flush()
	if payload != nil {
		fmt.Fprintf(out, "\n%s\n", payload)
	}
}

func laterEvents(l *outbox.Letter) string {
	if l.Parks {
		return "wait behind it until it is decided"
	}
	return "flow past it"
}
