package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/hubstate/hubstate/ingest"
)

func newStatus() *cobra.Command {
	op := operation{short: "Lanes, owners, last commits, backlog and what waits for a decision"}
	return op.command("status", cobra.NoArgs, func(c call) error {
		s, err := c.operator.Status(c.ctx)
		if err != nil {
			return err
		}
		return c.print(s, func(w io.Writer) { printStatus(w, s) })
	})
}

func printStatus(w io.Writer, s ingest.Status) {
	fmt.Fprintln(w, "LANE\tOWNER\tTERM\tLEASE\tLAST COMMIT\tUNCONFIRMED\tAPPLIED\tDUPLICATE\tLATE\tCOALESCED\tDISCARDED\tIGNORED\tQUARANTINED\tBROKER DROPS")
	for _, l := range s.Lanes {
		lease := "-"
		if l.LeaseSeconds != nil {
			lease = fmt.Sprintf("%.1fs", *l.LeaseSeconds)
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", l.Lane, text(l.Owner), l.Term, lease, stamp(l.CommittedAt), l.Unconfirmed,
			l.Applied, l.Duplicate, l.Late, l.Coalesced, l.Discarded, l.Ignored, l.Quarantined, l.Dropped)
	}
	fmt.Fprintf(w, "\noutbox backlog\t%d bytes (estimated)\nopen gaps\t%d\nundecided rejects\t%d\nrejects beyond caps\t%d\nowed streams\t%d\n",
		s.BacklogBytes, s.OpenGaps, s.Undecided, s.Overflow, s.Owed)
}

func newGaps() *cobra.Command {
	cmd := &cobra.Command{Use: "gaps", Short: "What devices sent and never reached us"}
	cmd.AddCommand(newGapsList())
	return cmd
}

// gapsAnswer is what `gaps list --json` prints.
type gapsAnswer struct {
	Gaps     []ingest.Gap         `json:"gaps"`
	Possible []ingest.PossibleGap `json:"possible_gaps"`
}

func newGapsList() *cobra.Command {
	var f ingest.GapFilter
	op := operation{short: "List ranges of device counters that are missing, and windows in which reports may be lost, newest first"}
	cmd := op.command("list", cobra.NoArgs, func(c call) error {
		gaps, err := c.operator.Gaps(c.ctx, f)
		if err != nil {
			return err
		}
		answer := gapsAnswer{Gaps: gaps}
		if f.Device == "" {
			if answer.Possible, err = c.operator.PossibleGaps(c.ctx, f.Limit); err != nil {
				return err
			}
		}
		return c.print(answer, func(w io.Writer) { printGaps(w, answer) })
	})
	cmd.Flags().StringVar(&f.Device, "device", "", "only of this device")
	cmd.Flags().BoolVar(&f.Closed, "closed", false, "also those whose reports arrived late")
	cmd.Flags().IntVar(&f.Limit, "limit", 100, "at most this many of each")
	return cmd
}

func printGaps(w io.Writer, a gapsAnswer) {
	fmt.Fprintln(w, "DETECTED\tDEVICE\tSTREAM\tBOOT\tFROM\tTO\tARRIVED LATE\tMISSING\tCLOSED")
	for _, g := range a.Gaps {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\t%s\n", stamp(&g.DetectedAt), g.Device, g.Stream, number(g.Boot), g.From, g.To, g.ArrivedLate, g.Missing, stamp(g.ClosedAt))
	}
	if len(a.Possible) == 0 {
		return
	}
	fmt.Fprintln(w, "\nLANE\tCAUSE\tFROM\tTO\tDETAIL")
	for _, g := range a.Possible {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", g.Lane, g.Cause, stamp(g.From), stamp(&g.To), g.Detail)
	}
}
