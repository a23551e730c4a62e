package main

import (
	"encoding/base64"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/hubstate/hubstate/ingest"
	"github.com/hubstate/hubstate/internal/ops"
)

func newRejects() *cobra.Command {
	cmd := &cobra.Command{Use: "rejects", Short: "Reports that could not be applied: look at them, feed them again, discard them"}
	cmd.AddCommand(newRejectsList(), newRejectsShow(), newRejectsRetry(), newRejectsDiscard())
	return cmd
}

func newRejectsList() *cobra.Command {
	var f ingest.RejectFilter
	op := operation{short: "List rejects, oldest first, without their payloads"}
	cmd := op.command("list", cobra.NoArgs, func(c call) error {
		list, err := c.operator.Rejects(c.ctx, f)
		if err != nil {
			return err
		}
		return c.print(list, func(w io.Writer) {
			fmt.Fprintln(w, "ID\tRECEIVED\tREASON\tDEVICE\tSTREAM\tBYTES\tDECISION\tDETAIL")
			for _, r := range list {
				fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", r.ID, stamp(&r.ReceivedAt), r.Reason, text(r.Device), text(r.Stream), r.Bytes, text(r.Decision), r.Detail)
			}
		})
	})
	cmd.Flags().StringVar(&f.Device, "device", "", "only of this device")
	cmd.Flags().StringVar(&f.Reason, "code", "", "only with this reason code")
	cmd.Flags().BoolVar(&f.Decided, "decided", false, "also those that were decided")
	cmd.Flags().IntVar(&f.Limit, "limit", 100, "at most this many")
	return cmd
}

// shown is a reject with its payload: as text when it is text, else in base64.
type shown struct {
	ingest.Reject
	Payload string `json:"payload"`
	Base64  bool   `json:"base64"`
}

func newRejectsShow() *cobra.Command {
	raw := false
	op := operation{short: "Show one reject with its payload"}
	cmd := op.command("show ID", cobra.ExactArgs(1), func(c call) error {
		ids, err := parseIDs(c.args)
		if err != nil {
			return err
		}
		r, payload, err := c.operator.Reject(c.ctx, ids[0])
		if err != nil {
			return err
		}
		if raw {
			_, err := c.out.Write(payload)
			return err
		}
		s := shown{Reject: r, Payload: string(payload)}
		if !utf8.Valid(payload) {
			s.Payload, s.Base64 = base64.StdEncoding.EncodeToString(payload), true
		}
		return c.print(s, func(w io.Writer) {
			fmt.Fprintf(w, "id\t%d\nreceived\t%s\ntopic\t%s\ndevice\t%s\nstream\t%s\nreason\t%s\ndetail\t%s\ndecision\t%s\npayload\t%s\n",
				r.ID, stamp(&r.ReceivedAt), r.Topic, text(r.Device), text(r.Stream), r.Reason, r.Detail, text(r.Decision), s.Payload)
		})
	})
	cmd.Flags().BoolVar(&raw, "raw", false, "write the payload's bytes and nothing else")
	return cmd
}

func newRejectsRetry() *cobra.Command {
	cfg := retryConfig{Hub: "hub"}
	var f ingest.RejectFilter
	yes := false
	op := operation{short: "Feed rejects through the same path again, after a profile was fixed", changes: true, also: &cfg}
	op.long = `Feed rejects through the same path again with the profiles given, in order of their ids and with their own time of arrival.
What is refused again becomes a new reject. Without --yes it only says what it would feed.

  ingest rejects retry --code unknown_stream --profiles mine.yaml,vda5050 --reason "profile fixed" --yes
  ingest rejects retry 17 18 --reason "hub moved" --yes`
	cmd := op.command("retry [ID...]", cobra.ArbitraryArgs, func(c call) error {
		ids, err := parseIDs(c.args)
		if err != nil {
			return err
		}
		if len(ids) == 0 {
			list, err := c.operator.Rejects(c.ctx, f)
			if err != nil {
				return err
			}
			for _, r := range list {
				ids = append(ids, r.ID)
			}
		}
		if !yes {
			return c.print(map[string]any{"would_retry": ids}, func(w io.Writer) { fmt.Fprintf(w, "would feed %d rejects: %v; add --yes\n", len(ids), ids) })
		}
		done, err := c.operator.Retry(c.ctx, ingest.Config{Profiles: cfg.Profiles, Hub: cfg.Hub}, ids, c.reason)
		if err != nil {
			return err
		}
		return c.print(done, func(w io.Writer) {
			fmt.Fprintln(w, "ID\tCLASS\tDEVICE\tSTREAM\tREASON")
			for _, r := range done {
				fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\n", r.ID, r.Class, r.Device, r.Stream, r.Reason)
			}
		})
	})
	cmd.Flags().StringVar(&f.Device, "device", "", "without ids: undecided rejects of this device")
	cmd.Flags().StringVar(&f.Reason, "code", "", "without ids: undecided rejects with this reason code")
	cmd.Flags().IntVar(&f.Limit, "limit", 100, "without ids: at most this many")
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	return cmd
}

// retryConfig is what the path is configured with; the rest are defaults.
type retryConfig struct {
	Profiles []string `koanf:"profiles" help:"device profiles in order of precedence: built-in names or YAML files, comma list"`
	Hub      string   `koanf:"hub" help:"hub of topics that name none"`
}

func newRejectsDiscard() *cobra.Command {
	op := operation{short: "Decide that rejects are not to be applied; they make room for new ones", changes: true}
	return op.command("discard ID...", cobra.MinimumNArgs(1), func(c call) error {
		ids, err := parseIDs(c.args)
		if err != nil {
			return err
		}
		for _, id := range ids {
			if err := c.operator.Discard(c.ctx, id, c.reason); err != nil {
				return err
			}
		}
		return c.print(map[string]any{"discarded": ids}, func(w io.Writer) { fmt.Fprintf(w, "discarded %v\n", ids) })
	})
}

func parseIDs(args []string) ([]int64, error) {
	var ids []int64
	for _, a := range args {
		id, err := strconv.ParseInt(a, 10, 64)
		if err != nil || id < 1 {
			return nil, ops.UsageError(fmt.Errorf("%q is no id of a reject", a))
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func text(p *string) string {
	if p == nil {
		return "-"
	}
	return *p
}

func stamp(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

// table aligns what fill writes with tabs.
func table(w io.Writer, fill func(io.Writer)) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fill(t)
	return t.Flush()
}
