package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/hubstate/hubstate/internal/ops"
	"github.com/hubstate/hubstate/internal/schema"
	"github.com/hubstate/hubstate/outbox"
	"github.com/hubstate/hubstate/partitions"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
)

// roleMaintainer owns the outbox table; ATTACH and DETACH need the owner.
const roleMaintainer = "hubstate_maintainer"

// maintainer is the configuration of the partitions' maintainer that `relay run` runs and `relay partitions` asks. What
// may be sealed is decided by outbox.Drained (P2), who must be waited for by the bucket locks.
func (c *config) maintainer(s schema.Settings, reg prometheus.Registerer, log *slog.Logger) partitions.Config {
	return partitions.Config{
		Spec: c.partitionSpec(),
		Connect: func(ctx context.Context) (*pgx.Conn, error) {
			return ops.OpenConn(ctx, or(c.MaintainerURL, c.URL), roleMaintainer, "hubstate-maintainer", nil)
		},
		Drained: func(ctx context.Context, tx pgx.Tx, partition string) (bool, string, error) {
			return outbox.Drained(ctx, tx, partition)
		},
		Barrier: func(ctx context.Context, conn *pgx.Conn) error {
			return outbox.LockBuckets(ctx, conn, s.Buckets)
		},
		Store:         c.archive(),
		SchemaVersion: schema.Latest(),
		Log:           log,
		Registry:      reg,
	}
}

func (c *config) partitionSpec() partitions.Spec {
	p := c.Partitions
	return partitions.Spec{
		Interval: p.Interval, Runway: p.Runway, RetainSent: p.RetainSent, KeepAll: p.KeepAll,
		Retain: []partitions.Retention{
			{Subject: "dead", Keep: p.RetainDead},
			{Subject: "rejects", Keep: p.RetainRejects},
			{Subject: "gaps", Keep: p.RetainRejects},
			{Subject: "audit", Keep: p.RetainAudit},
		},
	}
}

func (c *config) archive() partitions.Store {
	if c.ArchiveDir == "" {
		return nil
	}
	return partitions.Dir(c.ArchiveDir)
}

func (c *config) validatePartitions() error {
	err := c.partitionSpec().Validate()
	for name, keep := range map[string]time.Duration{
		"retain_dead": c.RetainDead, "retain_rejects": c.RetainRejects, "retain_audit": c.RetainAudit,
	} {
		if keep > 0 && keep < 24*time.Hour {
			err = errors.Join(err, errors.New(name+" "+keep.String()+": must be 0s (for ever) or at least 24h"))
		}
	}
	return err
}

func or(value, standard string) string {
	if value == "" {
		return standard
	}
	return value
}
