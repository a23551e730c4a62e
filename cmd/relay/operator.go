package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/hubstate/hubstate/internal/schema"
	"github.com/hubstate/hubstate/outbox"
	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"
)

// roleOperator may decide about dead letters and nothing else.
const roleOperator = "hubstate_operator"

// operator is one decision on the command line: who, why, and the session it is made in.
type operator struct {
	cmd      *cobra.Command
	cfg      *config
	conn     *pgx.Conn
	settings schema.Settings
	decision outbox.Decision
}

// decisionFlags are --actor and --reason.
type decisionFlags struct{ actor, reason string }

func (f *decisionFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.actor, "actor", "", "who decides; default: the database login")
	cmd.Flags().StringVar(&f.reason, "reason", "", "why; goes into the audit")
}

// openOperator opens a session with the operator's rights and finds out who is asking. The database login is always
// audited too, so that a name given by --actor never stands alone.
func openOperator(cmd *cobra.Command, cfg *config, f decisionFlags) (*operator, error) {
	if err := cfg.load(cmd); err != nil {
		return nil, err
	}
	ctx := cmd.Context()
	conn, err := cfg.connect(ctx, roleOperator)
	if err != nil {
		return nil, err
	}
	op := &operator{cmd: cmd, cfg: cfg, conn: conn, decision: outbox.Decision{By: strings.TrimSpace(f.actor), Reason: f.reason}}
	if op.settings, err = cfg.checkSchema(ctx, cmd, conn); err == nil && op.decision.By == "" {
		err = conn.QueryRow(ctx, selectLogin).Scan(&op.decision.By)
	}
	if err != nil {
		op.close()
		return nil, fmt.Errorf("open operator's session: %w", err)
	}
	return op, nil
}

func (o *operator) close() { _ = o.conn.Close(context.WithoutCancel(o.cmd.Context())) }

// transaction runs fn in one transaction.
func (o *operator) transaction(fn func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(o.cmd.Context(), o.conn, fn)
}
