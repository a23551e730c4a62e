package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/user"

	"github.com/spf13/cobra"

	"github.com/hubstate/hubstate/ingest"
	"github.com/hubstate/hubstate/internal/ops"
)

// operation is a command that acts on the database for a person: it connects, and prints a table or JSON.
type operation struct {
	short, long string
	changes     bool // writes states: runs as the ingest role, and --reason is required and audited
	also        any  // further keys, loaded like the database's
}

// call is one run of an operation.
type call struct {
	ctx      context.Context
	operator *ingest.Operator
	args     []string
	reason   string
	out      io.Writer
	asJSON   bool
}

func (o operation) command(use string, args cobra.PositionalArgs, do func(call) error) *cobra.Command {
	var db database
	var reason, actor string
	asJSON := false
	cmd := &cobra.Command{
		Use: use, Short: o.short, Long: o.long, Args: args,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.changes && reason == "" && !dry(cmd) {
				return ops.UsageError(fmt.Errorf("--reason is required: it is audited"))
			}
			if o.also != nil {
				if err := ops.Load(cmd.Flags(), o.also); err != nil {
					return err
				}
			}
			pool, settings, err := db.open(cmd.Context(), cmd, o.changes)
			if err != nil {
				return err
			}
			defer pool.Close()
			return do(call{
				ctx: cmd.Context(), operator: ingest.NewOperator(pool, settings.Buckets, actor), args: args, reason: reason,
				out: cmd.OutOrStdout(), asJSON: asJSON,
			})
		},
	}
	ops.AddFlags(cmd.Flags(), &db)
	if o.also != nil {
		ops.AddFlags(cmd.Flags(), o.also)
	}
	if o.changes {
		cmd.Flags().StringVar(&reason, "reason", "", "reason, kept in the audit")
		cmd.Flags().StringVar(&actor, "actor", defaultActor(), "who acts, kept in the audit")
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// dry says whether the command has a --yes that was not given.
func dry(cmd *cobra.Command) bool {
	yes := cmd.Flags().Lookup("yes")
	return yes != nil && !yes.Changed
}

func (c call) print(v any, human func(io.Writer)) error {
	if c.asJSON {
		return printJSON(c.out, v)
	}
	return table(c.out, human)
}

// defaultActor is who is logged in, at which machine.
func defaultActor() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}
