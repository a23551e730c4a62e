package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/hubstate/hubstate/internal/monitor"
	"github.com/hubstate/hubstate/internal/ops"
	"github.com/hubstate/hubstate/internal/schema"
)

func newRun() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Read the topic into the view and serve the page, until stopped",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := load(cmd.Flags())
			if err != nil {
				return err
			}
			log, err := ops.NewLogger(cmd.ErrOrStderr(), cfg.LogLevel, cfg.LogFormat)
			if err != nil {
				return err
			}
			return run(cmd.Context(), cfg, log.With("instance", cfg.Instance))
		},
	}
	cfg := defaultConfig()
	ops.AddFlags(cmd.Flags(), &cfg)
	return cmd
}

func run(ctx context.Context, cfg config, log *slog.Logger) error {
	redis.SetLogger(quiet{log})
	kafka, err := cfg.options()
	if err != nil {
		return err
	}
	reg := ops.NewRegistry()
	admin := ops.NewAdmin(cfg.AdminAddr, reg, log)
	if cfg.Pprof {
		admin.EnablePprof()
	}
	if err := admin.Listen(); err != nil {
		return err
	}
	pool, err := openDatabase(ctx, cfg)
	if err != nil {
		return err
	}
	if pool != nil {
		defer pool.Close()
	}
	m, err := monitor.New(cfg.Config, monitor.Outside{
		Log: log, Registerer: reg, Database: pool, Reading: admin.Condition("reading"), Serving: admin.Condition("view"),
		Kafka: kafka,
	})
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return admin.Run(ctx) })
	g.Go(func() error { return m.Run(ctx) })
	return g.Wait()
}

// openDatabase opens the cell's database as a reader that cannot hold anybody up; nil when none is configured.
// Its settings are checked at start: a monitor of another topic would judge one pipeline by another's backlog.
func openDatabase(ctx context.Context, cfg config) (*pgxpool.Pool, error) {
	if cfg.DatabaseURL == "" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	settings := map[string]string{"default_transaction_read_only": "on", "statement_timeout": "5s"}
	pool, err := ops.OpenPool(ctx, cfg.DatabaseURL, "hubstate_reader", "hubstate monitor "+cfg.Instance, settings, 2)
	if err != nil {
		return nil, err
	}
	if err := checkTopic(ctx, pool, cfg.KafkaTopic); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

func checkTopic(ctx context.Context, pool *pgxpool.Pool, topic string) error {
	s, err := schema.Check(ctx, pool)
	if err != nil {
		return fmt.Errorf("check the schema: %w", err)
	}
	if s.Topic != topic {
		return fmt.Errorf("kafka_topic = %q: the database of database_url publishes to %q", topic, s.Topic)
	}
	return nil
}

// quiet sends what the Redis client has to say to our log; it repeats itself during an outage, which the page shows
// already.
type quiet struct{ log *slog.Logger }

// Printf implements the client's logger.
func (q quiet) Printf(_ context.Context, format string, v ...any) {
	q.log.Debug("redis client", "message", fmt.Sprintf(format, v...))
}
