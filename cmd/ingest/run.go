package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/hubstate/hubstate/ingest"
	"github.com/hubstate/hubstate/internal/ops"
	"github.com/hubstate/hubstate/internal/schema"
)

const (
	startRetry = 2 * time.Second // pause between two tries to reach the database at start
	// Per lane one connection for its transactions and one for its row, and one for the outbox's size.
	connectionsPerLane = 2

	gcPercent   = 400
	memoryLimit = 192 << 20
)

func newRun() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Subscribe and store reports until stopped",
		Long: `Subscribe to the broker and store reports until stopped: state and event in one transaction, acknowledged after it.

Ready (/readyz) means: every lane of this ingester is connected and subscribed. A second ingester with the same lanes
stands by and takes over when the first one's lease runs out. SIGTERM commits and acknowledges what was read.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadRun(cmd.Flags())
			if err != nil {
				return err
			}
			log, err := ops.NewLogger(cmd.ErrOrStderr(), cfg.LogLevel, cfg.LogFormat)
			if err != nil {
				return err
			}
			return run(cmd.Context(), cfg, log)
		},
	}
	cfg := defaultConfig()
	ops.AddFlags(cmd.Flags(), &cfg)
	return cmd
}

// tuneMemory lets the heap of a process that lives on short-lived batches grow before it is collected: a third of the
// processor time goes to the collector otherwise. The soft limit brings it back when queues are full. GOGC and GOMEMLIMIT
// win.
func tuneMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
}

func run(ctx context.Context, cfg config, log *slog.Logger) error {
	tuneMemory()
	reg := ops.NewRegistry()
	admin := ops.NewAdmin(cfg.AdminAddr, reg, log)
	if cfg.Pprof {
		admin.EnablePprof()
	}
	if err := admin.Listen(); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return admin.Run(ctx) })
	g.Go(func() error {
		ready := admin.Condition("sessions")
		pool, err := openWhenThere(ctx, cfg, ready, log)
		if err != nil {
			return err
		}
		defer pool.Close()
		service, err := ingest.New(cfg.Config, pool, reg, log)
		if err != nil {
			return err
		}
		service.OnReady(ready.Set)
		return service.Run(ctx)
	})
	return g.Wait()
}

// openWhenThere waits for a database that does not answer yet: machines start in any order. One that answers and is not
// ours is refused at once.
func openWhenThere(ctx context.Context, cfg config, ready *ops.Condition, log *slog.Logger) (*pgxpool.Pool, error) {
	connections := int32(connectionsPerLane*max(len(cfg.Sessions), 1) + 1)
	for {
		attempt, cancel := context.WithTimeout(ctx, 10*time.Second)
		pool, err := ops.OpenPool(attempt, cfg.DatabaseURL, ingest.Role, "hubstate-ingest "+cfg.Instance, ingest.SessionSettings(), connections)
		if err == nil {
			_, err = schema.Check(attempt, pool)
			cancel()
			if err != nil {
				pool.Close()
				return nil, fmt.Errorf("check the schema: %w", err)
			}
			return pool, nil
		}
		cancel()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if refused(err) {
			return nil, err
		}
		ready.Set(err)
		log.Warn("database not reached; trying again", "error", err)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(startRetry):
		}
	}
}

// refused says whether the database answered and did not want us: waiting changes nothing then.
func refused(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code != "57P03" && pg.Code != "53300" // starting up; too many connections
}
