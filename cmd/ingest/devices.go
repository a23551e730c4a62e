package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/hubstate/hubstate/ingest"
)

func newAcceptReboot() *cobra.Command {
	var device, stream string
	op := operation{short: "Make the next report of a stream start a boot, whatever its counter says", changes: true}
	cmd := op.command("accept-reboot", cobra.NoArgs, func(c call) error {
		if err := c.operator.AcceptReboot(c.ctx, device, stream, c.reason); err != nil {
			return err
		}
		answer := map[string]any{"device_id": device, "stream": stream, "reboot_pending": true}
		return c.print(answer, func(w io.Writer) { fmt.Fprintf(w, "the next report of %s %s is taken as a reboot\n", device, stream) })
	})
	deviceFlags(cmd, &device)
	cmd.Flags().StringVar(&stream, "stream", "", "stream of the device")
	_ = cmd.MarkFlagRequired("stream") // the flag exists
	return cmd
}

func newRestate() *cobra.Command {
	var device, stream string
	op := operation{short: "Emit the current state of a device again, under new sequences", changes: true}
	cmd := op.command("restate", cobra.NoArgs, func(c call) error {
		done, err := c.operator.Restate(c.ctx, device, stream, c.reason)
		return c.printRestated(done, err)
	})
	deviceFlags(cmd, &device)
	cmd.Flags().StringVar(&stream, "stream", "", "only this stream")
	return cmd
}

func newMove() *cobra.Command {
	var device, hub string
	op := operation{short: "Make another hub the hub of a device, and say its states again from there", changes: true}
	cmd := op.command("move", cobra.NoArgs, func(c call) error {
		done, err := c.operator.Move(c.ctx, device, hub, c.reason)
		return c.printRestated(done, err)
	})
	deviceFlags(cmd, &device)
	cmd.Flags().StringVar(&hub, "hub", "", "hub that the device reports from now on")
	_ = cmd.MarkFlagRequired("hub") // the flag exists
	return cmd
}

func deviceFlags(cmd *cobra.Command, device *string) {
	cmd.Flags().StringVar(device, "device", "", "device id")
	_ = cmd.MarkFlagRequired("device") // the flag exists
}

func (c call) printRestated(done []ingest.Restated, err error) error {
	if err != nil {
		return err
	}
	return c.print(done, func(w io.Writer) {
		fmt.Fprintln(w, "DEVICE\tSTREAM\tHUB\tEPOCH\tSEQUENCE")
		for _, r := range done {
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\n", r.Device, r.Stream, r.Hub, r.Epoch, r.Sequence)
		}
	})
}
